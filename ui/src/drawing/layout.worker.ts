import { type LayoutInput, layoutOf } from "./layout.ts";

onmessage = (event: MessageEvent<{ ticket: number; input: LayoutInput }>): void => {
  const layout = layoutOf(event.data.input);
  const buffers = [layout.x.buffer, layout.y.buffer, layout.small.buffer, layout.level.buffer, layout.cell.buffer];
  (postMessage as (message: unknown, transfer: Transferable[]) => void)({ ticket: event.data.ticket, layout }, buffers);
};
