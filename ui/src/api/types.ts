// Shapes of `/v1` as far as the page reads them. `tests/unit/ui/test_page_sources.py` compares each field with the OpenAPI description.

export interface Quantity { units: number; amount: number; text: string }
export type Amounts = Record<string, Quantity>;

export interface RunLine {
  id: string; tenant: string; state: string; created_ms: number; ended_ms: number; reason: string | null; detail: string;
  counts: Record<string, number>; labels: Record<string, string>; user: string; mesh_names?: string[];
  nodes_total: number; nodes_succeeded: number; nodes_failed: number; nodes_skipped: number;
}
export interface RunsView { runs: RunLine[]; next?: string | null }

export interface StageView {
  id: string; mesh: string; state: string; reason: string | null; detail: string; why_here: string; slots: number; width: number;
  sent_ms: number; started_ms: number; ended_ms: number; counts: Record<string, number>;
}
export interface BlockedView { reason: string; detail: string; count: number; nodes: string[] }
export interface FailureView { node: string; attempt: number; mesh: string | null; reason: string; type: string; message: string; traceback: string }
export interface ArrayView { node: string; state: string; elements: number | null; parts: number; counts: Record<string, number>; failed: string }
export interface RunView extends RunLine {
  estimated_end_ms: number;
  outputs: string[]; stages: StageView[]; blocked: BlockedView[]; waiting: BlockedView[]; arrays: ArrayView[]; failures: FailureView[];
}

export interface GraphView {
  id: string; tenant: string; state: string; seq: number; nodes: string[]; edges_from: number[]; edges_to: number[];
  states: string[]; stages: string[]; meshes: string[];
  node_state: number[]; node_stage: number[]; node_mesh: number[]; attempt: number[]; arrays: ArrayView[];
}
export interface TimelineView {
  id: string; state: string; created_ms: number; now_ms: number; end_ms: number;
  nodes: string[]; meshes: string[]; stages: string[]; states: string[]; reasons: string[];
  node: number[]; attempt: number[]; mesh: number[]; stage: number[]; bar_state: number[]; reason: number[];
  from_ms: number[]; to_ms: number[];
}

export interface AttemptView { attempt: number; mesh: string | null; started_ms: number; ended_ms: number; reason: string; type: string; detail: string }
export interface NodeView {
  node: string; control: string | null; needs: string[]; state: string; attempt: number; retries_used: number; losses: number;
  attempts: AttemptView[]; not_before_ms: number; stage: string | null; mesh: string | null; reason: string | null; detail: string;
  started_ms: number; finished_ms: number; progress: number | null; failure: FailureView | null; roots: string[]; value_bytes: number | null; cache: string | null; array: ArrayView | null;
}
export interface NodesView { nodes: NodeView[]; next: string | null }

export interface ElementView { index: number; state: string; attempt: number; type: string; message: string }
export interface ElementsView { array: ArrayView; elements: ElementView[]; next: number | null }

export interface LogEntry { seq: number; at_ms: number; mesh: string; node: string; attempt: number; stream: string; number: number; lines: string[] }
export interface LogsView { entries: LogEntry[]; next: number; more: boolean }

export interface EventView {
  seq: number; at_ms: number; run: string; kind: string; node: string | null; attempt: number; stage: string | null; mesh: string | null;
  before: string; after: string; reason: string | null; detail: string;
}
export interface EventsView { events: EventView[]; next: number }

export interface QuotaView {
  flavor: string; resource: string; nominal: Quantity; used: Quantity; borrowed: Quantity; available: Quantity; potential: Quantity;
  borrowing_limit: Quantity | null; lending_limit: Quantity | null;
}
export interface TenantView {
  tenant: string; parent: string | null; quotas: QuotaView[]; stop: string; stop_reason: string; stopped_ms: number; weight: string;
  priority_max: number | null; running_max: number | null; running_max_per_user: number | null; max_wait_ms: number | null;
}
export interface TenantsView { at_ms: number; tenants: TenantView[] }

export interface PoolView { pool: string; flavor: string; capacity: Amounts; used: Amounts; groups: { reserved: number; in_use: number; idle: number } | null }
export interface MeshEntry {
  mesh: string; alive: boolean; cluster_answers: boolean; draining: boolean; drain_reason: string; stable: boolean; stable_in_ms: number;
  losses: number; run_ms: number | null; heartbeat_age_ms: number; labels: Record<string, string>; tenants: string[]; warnings: string[];
  pools: PoolView[]; nodes: { nodes: number; total: Amounts }[]; waiting: number; running: number; waiting_for_ray: number;
  oldest_waiting_ms: number; oldest_running_ms: number;
}
export interface AbsentEntry { mesh: string; state: string; draining: boolean; drain_reason: string; labels: Record<string, string> }
export interface MeshesView { at_ms: number; meshes: MeshEntry[]; absent: AbsentEntry[] }

export interface ChangeView { lever: string; tenant: string; flavor: string; resource: string; amount: Quantity; words: string }
export interface VictimView { mesh: string; tenant: string | null; flavor: string; amounts: Amounts; reason: string; stages: string[]; shrinking: string[] }
export interface WaitingView {
  stage: string; run: string; tenant: string; mesh: string; position: number; tenant_position: number | null; priority: number; reason: string;
  changes: ChangeView[]; start_ms: number | null; overdue_ms: number; slot: Amounts; width: number;
}
export interface KeptBackView { run: string; tenant: string; user: string; position: number; reason: string; detail: string; created_ms: number }
export interface UnmetView { mesh: string; tenant: string; flavor: string; slots: number; beyond: number; slot: Amounts; reason: string; detail: string; waiting_ms: number }
export interface QueueView { at_ms: number; waiting: WaitingView[]; cut_short: Record<string, number>; kept_back: KeptBackView[]; unmet: UnmetView[] }

export interface StageExplanation {
  stage: string; mesh: string; state: string; reason: string | null; detail: string; why_here: string; position: number | null;
  tenant_position: number | null; changes: ChangeView[]; start_ms: number | null; overdue_ms: number; victims: VictimView[];
}
export interface RunExplanation { id: string; state: string; stages: StageExplanation[]; blocked: BlockedView[]; waiting: BlockedView[] }
export interface PlannedStageView {
  stage: string; mesh: string; nodes: string[]; count: number; width: number; slot: Amounts; why_here: string; goes_first: boolean;
  reason: string | null; detail: string; position: number; tenant_position: number; changes: ChangeView[]; start_ms: number | null;
  overdue_ms: number; victims: VictimView[];
}
export interface PlanView { tenant: string; at_ms: number; reason: string | null; detail: string; stages: PlannedStageView[]; blocked: BlockedView[] }

export interface CallerView { key: string; tenant: string; user: string; operator: boolean; role: string; permissions: string[] }

export interface LeaseEventView {
  at_ms: number; verb: string; why: string; lease: string | null; tenant: string | null; mesh: string | null; flavor: string | null;
  held: Amounts; target: Amounts;
}
export interface HistoryView { lease_events: LeaseEventView[] }

export interface RecordedChangeView {
  number: number; at_ms: number; operation: string; tenant: string; target: string; details: Record<string, string>; key: string; user: string;
  source: string; request_id: string; outcome: string; code: string;
}
export interface RecordedChangesView { changes: RecordedChangeView[]; next: number }

export interface UsageRowView {
  day: string | null; tenant: string | null; user: string | null; flavor: string | null; resource: string; unit: string; used: number; borrowed: number; lost: number;
}
export interface UsageView { at_ms: number; first: string; last: string; rows: UsageRowView[]; total: UsageRowView[] }
