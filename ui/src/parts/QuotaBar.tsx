import type { QuotaView } from "../api/types.ts";

/** Use of one quota: the own part, the borrowed part, and a mark at the nominal quota. */
export function QuotaBar({ quota }: { quota: QuotaView }) {
  const { nominal, used, borrowed } = quota;
  const whole = Math.max(nominal.units, used.units, quota.potential.units, 1);
  const share = (units: number): number => (Math.max(0, units) / whole) * 100;
  const own = Math.max(0, used.units - borrowed.units);
  const words = `${used.text} of ${nominal.text} used${borrowed.units > 0 ? `, ${borrowed.text} borrowed` : ""}`;
  return (
    <svg class="bar quota" viewBox="0 0 100 10" preserveAspectRatio="none" role="img" aria-label={words}>
      <title>{words}</title>
      <rect class="q-nominal" x="0" y="0" width={share(nominal.units)} height="10" />
      <rect class="q-used" x="0" y="0" width={share(own)} height="10" />
      <rect class="q-borrowed" x={share(own)} y="0" width={share(borrowed.units)} height="10" />
      {nominal.units > 0 && <rect class="q-mark" x={Math.min(99.4, share(nominal.units))} y="0" width="0.6" height="10" />}
    </svg>
  );
}
