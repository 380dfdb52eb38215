import { type Kind, KINDS } from "../states.ts";

/** Parts of a bar of length 100, failed first; none that stands for something is thinner than 1. */
export function pieces(kinds: Partial<Record<Kind, number>>, whole: number): { kind: Kind; from: number; width: number }[] {
  if (whole <= 0) return [];
  const there = KINDS.filter((kind) => kinds[kind]);
  const widths = there.map((kind) => Math.max(1, (kinds[kind]! / whole) * 100));
  const over = widths.reduce((sum, width) => sum + width, 0);
  const shrink = over > 100 ? 100 / over : 1;
  let from = 0;
  return there.map((kind, place) => {
    const width = widths[place]! * shrink;
    const piece = { kind, from, width };
    from += width;
    return piece;
  });
}
