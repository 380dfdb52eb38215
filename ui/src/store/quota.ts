// Quotas as the tenants' page shows them. Pure.
import type { QuotaView, TenantView } from "../api/types.ts";

/** Quotas with something to show: a tenant without quota or use of a resource says nothing. */
export function shownQuotas(tenant: TenantView, flavor: string, resource: string): QuotaView[] {
  return tenant.quotas.filter(
    (quota) => (!flavor || quota.flavor === flavor) && (!resource || quota.resource === resource) && (quota.nominal.units > 0 || quota.used.units > 0 || quota.potential.units > 0),
  );
}

/** How much of a tenant's nominal quota others use now: what is neither used by it nor free to it. */
export function lentUnits(quota: QuotaView): number {
  return Math.max(0, quota.nominal.units - Math.max(0, quota.used.units) - Math.max(0, quota.available.units));
}

export function depthOf(tenant: TenantView, all: ReadonlyMap<string, TenantView>): number {
  let depth = 0;
  for (let parent = tenant.parent; parent && all.has(parent); parent = all.get(parent)!.parent) depth++;
  return depth;
}

/** Parents before children, in the order of the answer: the tree as a list. */
export function treeOf(tenants: readonly TenantView[]): TenantView[] {
  const known = new Set(tenants.map((tenant) => tenant.tenant));
  const children = new Map<string | null, TenantView[]>();
  for (const tenant of tenants) {
    const parent = tenant.parent && known.has(tenant.parent) ? tenant.parent : null;
    children.set(parent, [...(children.get(parent) ?? []), tenant]);
  }
  const listed: TenantView[] = [];
  const walk = (parent: string | null): void => {
    for (const tenant of children.get(parent) ?? []) {
      listed.push(tenant);
      walk(tenant.tenant);
    }
  };
  walk(null);
  return listed;
}

export interface Borrowing { flavor: string; resource: string; borrowers: { tenant: string; text: string }[]; lenders: { tenant: string; units: number }[] }

/** Who borrows and who lends, by flavor and resource; without the tenants whose children are listed. */
export function borrowingOf(tenants: readonly TenantView[]): Borrowing[] {
  const parents = new Set(tenants.map((tenant) => tenant.parent));
  const found = new Map<string, Borrowing>();
  for (const tenant of tenants) {
    if (parents.has(tenant.tenant)) continue;
    for (const quota of tenant.quotas) {
      const key = `${quota.flavor} ${quota.resource}`;
      const one = found.get(key) ?? { flavor: quota.flavor, resource: quota.resource, borrowers: [], lenders: [] };
      found.set(key, one);
      if (quota.borrowed.units > 0) one.borrowers.push({ tenant: tenant.tenant, text: quota.borrowed.text });
      else if (lentUnits(quota) > 0) one.lenders.push({ tenant: tenant.tenant, units: lentUnits(quota) });
    }
  }
  return [...found.values()].filter((one) => one.borrowers.length);
}
