// Addresses of the pages, in the part after `#`: the root never sees them.
import { computed, signal } from "@preact/signals";

export interface Route { page: string; id: string; tab: string; query: Record<string, string> }

export const PAGES = ["runs", "tenants", "meshes", "queue", "events", "usage", "changes"] as const;

export function parse(hash: string): Route {
  const [path = "", text = ""] = hash.replace(/^#\/?/, "").split("?");
  const [page = "", id = "", tab = ""] = path.split("/").map(decoded);
  const known = (PAGES as readonly string[]).includes(page);
  return { page: page === "" ? "runs" : known ? page : "unknown", id, tab, query: Object.fromEntries(new URLSearchParams(text)) };
}

export function format(page: string, id = "", tab = "", query: Record<string, string> = {}): string {
  const parts = [page, id, tab].filter((part) => part !== "").map(encodeURIComponent);
  const kept = Object.entries(query).filter(([, value]) => value !== "");
  const text = new URLSearchParams(kept).toString();
  return `#/${parts.join("/")}${text ? `?${text}` : ""}`;
}

function decoded(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

const hash = signal(typeof location === "undefined" ? "" : location.hash);
if (typeof addEventListener === "function") addEventListener("hashchange", () => (hash.value = location.hash));

export const route = computed(() => parse(hash.value));

/** Change the address; filters replace the entry of the history, so that one step back leaves the page. */
export function go(address: string, replace = false): void {
  if (replace) {
    history.replaceState(null, "", address);
    hash.value = address;
  } else location.hash = address;
}

/** Set parts of the address's query. */
export function ask(changed: Record<string, string>): void {
  const { page, id, tab, query } = route.value;
  go(format(page, id, tab, { ...query, ...changed }), true);
}
