// Small parts of all pages.
import type { ComponentChildren } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { wordsOf } from "../api/client.ts";
import { count, duration, exact, plain } from "../format.ts";
import { byKind, GLYPH, type Kind, KINDS, kindOf } from "../states.ts";
import { pieces } from "./pieces.ts";
import { now } from "../store/poll.ts";

/** State with its glyph in its colour, and its name as text. */
export function Badge({ state, quiet = false }: { state: string; quiet?: boolean }) {
  return (
    <span class={`badge${quiet ? " quiet" : ""}`}>
      <Glyph kind={kindOf(state)} /> {state}
    </span>
  );
}

export function Glyph({ kind }: { kind: Kind }) {
  return <span class={`glyph s-${kind}`} aria-hidden="true">{GLYPH[kind]}</span>;
}

/** Bar of counts by state; failed first, so that a single failure among thousands shows. */
export function StateBar({ counts, total }: { counts: Record<string, number>; total?: number }) {
  const kinds = byKind(counts);
  const whole = total ?? Object.values(counts).reduce((sum, value) => sum + value, 0);
  const words = KINDS.filter((kind) => kinds[kind]).map((kind) => `${count(kinds[kind]!)} ${kind}`).join(", ");
  return (
    <svg class="bar" viewBox="0 0 100 8" preserveAspectRatio="none" role="img" aria-label={words || "nothing yet"}>
      <title>{words || "nothing yet"}</title>
      {pieces(kinds, whole).map(({ kind, from, width }) => <rect key={kind} class={`f-${kind}`} x={from} y="0" width={width} height="8" />)}
    </svg>
  );
}

/** How long ago; the exact time is its title. */
export function Age({ ms }: { ms: number }) {
  if (!ms) return <span class="muted">–</span>;
  return <time dateTime={exact(ms)} title={exact(ms)}>{duration(Math.max(0, now.value - ms))} ago</time>;
}

export function Reason({ code, detail = "" }: { code: string | null; detail?: string }) {
  if (!code && !detail) return <span class="muted">–</span>;
  return (
    <span>
      {code && <span class="reason" title={code}>{plain(code)}</span>}
      {detail && <span class="muted"> {detail}</span>}
    </span>
  );
}

export function Labels({ of }: { of: Record<string, string> }) {
  return <>{Object.entries(of).map(([name, value]) => <span key={name} class="label">{name}={value}</span>)}</>;
}

export function Loading({ what }: { what: string }) {
  return (
    <div class="state" role="status" aria-label={`Loading ${what}`}>
      <div class="skeleton" /><div class="skeleton" /><div class="skeleton" />
    </div>
  );
}

export function Empty({ title, children }: { title: string; children?: ComponentChildren }) {
  return (
    <div class="state empty">
      <p class="strong">{title}</p>
      {children && <div class="muted">{children}</div>}
    </div>
  );
}

export function Failed({ words, again }: { words: string; again?: () => void }) {
  return (
    <div class="state failed" role="alert">
      <Glyph kind="failed" /> <pre>{words}</pre>
      {again && <button type="button" onClick={again}>Try again</button>}
    </div>
  );
}

/** What a list shows in place of itself: an error, nothing yet, or nothing at all. Null: it has something. */
export function Standing({ polled, what }: { polled: { data: { value: unknown }; error: { value: string }; again: () => void }; what: string }) {
  if (polled.data.value === null && polled.error.value) return <Failed words={polled.error.value} again={polled.again} />;
  if (polled.data.value === null) return <Loading what={what} />;
  if (polled.error.value) return <p class="stale" role="status"><Glyph kind="blocked" /> Not up to date: {polled.error.value}</p>;
  return null;
}

/** Button of a call: busy while it goes on, and the refusal beside it. With `confirm` it asks first. */
export function Action({ words, run, confirm, danger = false, onDone }: {
  words: string; run: (reason: string) => Promise<unknown>; confirm?: string; danger?: boolean; onDone?: () => void;
}) {
  const [isBusy, setBusy] = useState(false);
  const [failed, setFailed] = useState("");
  const [reason, setReason] = useState("");
  const dialog = useRef<HTMLDialogElement>(null);
  const act = async (): Promise<void> => {
    setBusy(true);
    setFailed("");
    try {
      await run(reason);
      dialog.current?.close();
      onDone?.();
    } catch (broken) {
      setFailed(wordsOf(broken));
    } finally {
      setBusy(false);
    }
  };
  return (
    <>
      <button type="button" class={danger ? "danger" : ""} disabled={isBusy} onClick={() => (confirm ? dialog.current?.showModal() : void act())}>
        {words}
      </button>
      {!confirm && failed && <span class="refused" role="alert">{failed}</span>}
      {confirm && (
        <dialog ref={dialog} aria-label={words}>
          <p class="strong">{confirm}</p>
          <label>Reason, shown to others<input value={reason} maxLength={1000} onInput={(event) => setReason(event.currentTarget.value)} /></label>
          {failed && <p class="refused" role="alert">{failed}</p>}
          <div class="row end">
            <button type="button" onClick={() => dialog.current?.close()}>Keep as it is</button>
            <button type="button" class={danger ? "danger" : "primary"} disabled={isBusy} onClick={() => void act()}>{words}</button>
          </div>
        </dialog>
      )}
    </>
  );
}

/** Text input whose value is given on after a pause. */
export function Search({ value, label, onChange, id }: { value: string; label: string; onChange: (value: string) => void; id?: string }) {
  const [text, setText] = useState(value);
  const timer = useRef(0);
  useEffect(() => setText(value), [value]);
  const typed = (next: string): void => {
    setText(next);
    window.clearTimeout(timer.current);
    timer.current = window.setTimeout(() => onChange(next), 200);
  };
  return <input id={id} type="search" class="search" placeholder={label} aria-label={label} value={text} onInput={(event) => typed(event.currentTarget.value)} />;
}

export function Choice({ value, label, options, onChange }: {
  value: string; label: string; options: readonly (readonly [string, string])[]; onChange: (value: string) => void;
}) {
  return (
    <select aria-label={label} value={value} onChange={(event) => onChange(event.currentTarget.value)}>
      {options.map(([each, words]) => <option key={each} value={each}>{words}</option>)}
    </select>
  );
}

/** Choice of a view; the arrows move within it. */
export function Tabs({ label, chosen, tabs, onChoose }: {
  label: string; chosen: string; tabs: readonly (readonly [string, ComponentChildren])[]; onChoose: (tab: string) => void;
}) {
  const moved = (event: KeyboardEvent): void => {
    const step = event.key === "ArrowRight" ? 1 : event.key === "ArrowLeft" ? -1 : 0;
    if (!step) return;
    const place = (tabs.findIndex(([tab]) => tab === chosen) + step + tabs.length) % tabs.length;
    onChoose(tabs[place]![0]);
    (event.currentTarget as HTMLElement).querySelectorAll<HTMLElement>("[role=tab]")[place]?.focus();
  };
  return (
    <div class="tabs" role="tablist" aria-label={label} onKeyDown={moved}>
      {tabs.map(([tab, words]) => (
        <button key={tab} type="button" role="tab" aria-selected={tab === chosen} tabIndex={tab === chosen ? 0 : -1} onClick={() => onChoose(tab)}>{words}</button>
      ))}
    </div>
  );
}
