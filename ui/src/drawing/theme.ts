// Colours of the drawings, read from tokens.css.
import { type Kind, KINDS } from "../states.ts";

export interface Palette {
  bg: string; panel: string; raised: string; line: string; lineStrong: string; text: string; muted: string; accent: string;
  kind: Record<Kind, string>; mesh: string[]; sans: string; mono: string;
}

export function palette(): Palette {
  const style = getComputedStyle(document.documentElement);
  const of = (name: string): string => style.getPropertyValue(`--${name}`).trim();
  return {
    bg: of("bg"), panel: of("panel"), raised: of("raised"), line: of("line"), lineStrong: of("line-strong"), text: of("text"),
    muted: of("muted"), accent: of("accent"), sans: of("sans"), mono: of("mono"),
    kind: Object.fromEntries(KINDS.map((kind) => [kind, of(kind)])) as Record<Kind, string>,
    mesh: [0, 1, 2, 3].map((number) => of(`mesh-${number}`)),
  };
}
