// Whose key this tab has, and what the key may do.
import { signal } from "@preact/signals";
import { call } from "../api/client.ts";
import type { CallerView } from "../api/types.ts";

export const caller = signal<CallerView | null>(null);

/** Ask once after signing in; until the root has answered, nothing is hidden. */
export async function askCaller(): Promise<void> {
  try {
    caller.value = await call<CallerView>("/v1/whoami");
  } catch {
    caller.value = null;
  }
}

export function may(permission: string): boolean {
  return caller.value === null || caller.value.permissions.includes(permission);
}

/** From the least to the most. */
const ROLES = ["viewer", "submitter", "operator", "admin"];

/** Whether the key has this role or a higher one; false until the root has answered. */
export function hasRole(least: string): boolean {
  return caller.value !== null && ROLES.indexOf(caller.value.role) >= ROLES.indexOf(least);
}
