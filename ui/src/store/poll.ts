// A resource that is fetched again and again while the page is visible.
import { type Signal, signal, useSignal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import { wordsOf } from "../api/client.ts";

export interface Polled<T> {
  /** The newest answer; kept while later calls fail. */
  data: Signal<T | null>;
  error: Signal<string>;
  again: () => void;
}

/** Fetch at once, then every `everyMs` (0: once); fetch anew when one of `inputs` changes. */
export function usePolled<T>(load: (signal: AbortSignal) => Promise<T>, everyMs: number, inputs: readonly unknown[]): Polled<T> {
  const data = useSignal<T | null>(null);
  const error = useSignal("");
  const again = useRef<() => void>(() => {});
  useEffect(() => {
    const stop = new AbortController();
    let timer = 0;
    let isBusy = false;
    const next = (): void => {
      window.clearTimeout(timer);
      if (everyMs && !stop.signal.aborted && !document.hidden) timer = window.setTimeout(run, everyMs);
    };
    const run = async (): Promise<void> => {
      if (isBusy) return;
      isBusy = true;
      try {
        const found = await load(stop.signal);
        if (stop.signal.aborted) return;
        data.value = found;
        error.value = "";
      } catch (broken) {
        if (!stop.signal.aborted) error.value = wordsOf(broken);
      } finally {
        isBusy = false;
        next();
      }
    };
    const shown = (): void => {
      if (!document.hidden) void run();
      else window.clearTimeout(timer);
    };
    again.current = () => void run();
    document.addEventListener("visibilitychange", shown);
    void run();
    return () => {
      stop.abort();
      window.clearTimeout(timer);
      document.removeEventListener("visibilitychange", shown);
    };
  }, inputs);
  return { data, error, again: () => again.current() };
}

/** What the page says once for screen readers, at most every five seconds. */
export const announced = signal("");
let lastMs = 0;
export function announce(words: string): void {
  const nowMs = Date.now();
  if (nowMs - lastMs < 5_000) return;
  lastMs = nowMs;
  announced.value = words;
}

/** A clock that ticks once a second while the page is visible, for ages. */
export const now = signal(Date.now());
setInterval(() => {
  if (!document.hidden) now.value = Date.now();
}, 1_000);
