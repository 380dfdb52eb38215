import "./tokens.css";
import "./page.css";
import { render } from "preact";
import { useEffect, useRef } from "preact/hooks";
import { Empty } from "./parts/basics.tsx";
import { Changes } from "./pages/Changes.tsx";
import { Events } from "./pages/Events.tsx";
import { Meshes } from "./pages/Meshes.tsx";
import { Queue } from "./pages/Queue.tsx";
import { Run } from "./pages/Run.tsx";
import { Runs } from "./pages/Runs.tsx";
import { SignIn } from "./pages/SignIn.tsx";
import { Tenants } from "./pages/Tenants.tsx";
import { Usage } from "./pages/Usage.tsx";
import { format, go, PAGES, route } from "./routes.ts";
import { askCaller, caller, hasRole } from "./store/caller.ts";
import { announced } from "./store/poll.ts";
import { away, key, signOut, theme, toggleTheme } from "./store/session.ts";

const TITLES: Record<string, string> = { runs: "Runs", tenants: "Tenants", meshes: "Meshes", queue: "Queue", events: "Events", usage: "Usage", changes: "Changes" };

function Page() {
  const { page, id } = route.value;
  if (page === "runs") return id ? <Run key={id} id={id} /> : <Runs />;
  if (page === "tenants") return <Tenants />;
  if (page === "meshes") return <Meshes />;
  if (page === "queue") return <Queue />;
  if (page === "events") return <Events />;
  if (page === "usage") return <Usage />;
  if (page === "changes") return <Changes />;
  return <Empty title="There is no such page."><a href="#/runs">All runs</a></Empty>;
}

function Header() {
  const nav = useRef<HTMLElement>(null);
  const { page: here } = route.value;
  // Where the row of pages is wider than the screen, the present one is in sight. `scrollIntoView` would also move where Tab goes on.
  useEffect(() => {
    const [row, link] = [nav.current?.getBoundingClientRect(), nav.current?.querySelector("[aria-current]")?.getBoundingClientRect()];
    if (row && link) nav.current!.scrollLeft += Math.max(0, link.right - row.right) + Math.min(0, link.left - row.left);
  }, [here, caller.value]);
  const pages = PAGES.filter((page) => page !== "changes" || here === page || hasRole("operator"));
  return (
    <header class="top">
      <a class="skip" href="#main" onClick={(event) => { event.preventDefault(); document.getElementById("main")?.focus(); }}>Skip to content</a>
      <a class="brand" href="#/runs" aria-label="ScheduleMesh, all runs"><span aria-hidden="true" class="mark" />ScheduleMesh</a>
      <nav ref={nav} aria-label="Pages">
        {pages.map((page) => <a key={page} href={format(page)} aria-current={here === page ? "page" : undefined}>{TITLES[page]}</a>)}
      </nav>
      <div class="tools">
        {caller.value && <span class="who muted small" title={`Key ${caller.value.key}`}>{caller.value.operator ? "all tenants" : caller.value.tenant} · {caller.value.role}{caller.value.user && ` · ${caller.value.user}`}</span>}
        <button type="button" onClick={toggleTheme} aria-label={theme.value === "dark" ? "Light theme" : "Dark theme"} title="Change the theme">{theme.value === "dark" ? "☀" : "☾"}</button>
        <button type="button" onClick={() => signOut()}>Sign out</button>
      </div>
    </header>
  );
}

function App() {
  const main = useRef<HTMLElement>(null);
  const { page, id } = route.value;
  useEffect(() => {
    document.title = `${id || TITLES[page] || "ScheduleMesh"} · ScheduleMesh`;
    window.scrollTo(0, 0);
  }, [page, id]);
  useEffect(() => {
    const pressed = (event: KeyboardEvent): void => {
      const at = event.target as HTMLElement;
      if (event.key !== "/" || event.ctrlKey || event.metaKey || at.closest("input, textarea, select, dialog")) return;
      event.preventDefault();
      const search = document.getElementById("search");
      if (search) search.focus();
      else go(format("runs"));
    };
    addEventListener("keydown", pressed);
    return () => removeEventListener("keydown", pressed);
  }, []);
  useEffect(() => {
    caller.value = null;
    if (key.value !== null) void askCaller();
  }, [key.value]);
  if (key.value === null) return <SignIn />;
  return (
    <>
      <Header />
      {away.value && <p class="away" role="status"><span class="pulse" aria-hidden="true" /> Reconnecting: {away.value}</p>}
      <main id="main" ref={main} tabIndex={-1}><Page /></main>
      <p class="sr" role="status" aria-live="polite">{announced.value}</p>
    </>
  );
}

render(<App />, document.getElementById("page")!);
