// The key of this tab, the theme, and whether the root answers.
import { effect, signal } from "@preact/signals";

const KEY = "schedulemesh.key";
const THEME = "schedulemesh.theme";

/** API key of this tab; null: not signed in. It is never part of an address, and ends with the tab. */
export const key = signal<string | null>(sessionStorage.getItem(KEY));
/** Why the page asks for a key again. */
export const signInNote = signal("");
/** What keeps the root from answering; empty: it answers. */
export const away = signal("");

export type Theme = "light" | "dark";
const wished = matchMedia("(prefers-color-scheme: dark)");
const kept = localStorage.getItem(THEME);
export const theme = signal<Theme>(kept === "light" || kept === "dark" ? kept : wished.matches ? "dark" : "light");
wished.addEventListener("change", () => {
  if (!localStorage.getItem(THEME)) theme.value = wished.matches ? "dark" : "light";
});

export function toggleTheme(): void {
  theme.value = theme.value === "dark" ? "light" : "dark";
  localStorage.setItem(THEME, theme.value);
}

export function signIn(entered: string): void {
  sessionStorage.setItem(KEY, entered);
  signInNote.value = "";
  key.value = entered;
}

export function signOut(note = ""): void {
  sessionStorage.removeItem(KEY);
  signInNote.value = note;
  key.value = null;
}

effect(() => {
  document.documentElement.dataset["theme"] = theme.value;
});
