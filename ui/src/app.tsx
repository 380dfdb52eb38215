import "./tokens.css";
import "./page.css";
import { render } from "preact";
import { useEffect, useRef } from "preact/hooks";
import { Empty } from "./parts/basics.tsx";
import { Events } from "./pages/Events.tsx";
import { Meshes } from "./pages/Meshes.tsx";
import { Queue } from "./pages/Queue.tsx";
import { Run } from "./pages/Run.tsx";
import { Runs } from "./pages/Runs.tsx";
import { SignIn } from "./pages/SignIn.tsx";
import { Tenants } from "./pages/Tenants.tsx";
import { format, go, PAGES, route } from "./routes.ts";
import { askCaller, caller } from "./store/caller.ts";
import { announced } from "./store/poll.ts";
import { away, key, signOut, theme, toggleTheme } from "./store/session.ts";

const TITLES: Record<string, string> = { runs: "Runs", tenants: "Tenants", meshes: "Meshes", queue: "Queue", events: "Events" };

function Page() {
  const { page, id } = route.value;
  if (page === "runs") return id ? <Run key={id} id={id} /> : <Runs />;
  if (page === "tenants") return <Tenants />;
  if (page === "meshes") return <Meshes />;
  if (page === "queue") return <Queue />;
  if (page === "events") return <Events />;
  return <Empty title="There is no such page."><a href="#/runs">All runs</a></Empty>;
}

function Header() {
  return (
    <header class="top">
      <a class="skip" href="#main" onClick={(event) => { event.preventDefault(); document.getElementById("main")?.focus(); }}>Skip to content</a>
      <a class="brand" href="#/runs" aria-label="ScheduleMesh, all runs"><span aria-hidden="true" class="mark" />ScheduleMesh</a>
      <nav aria-label="Pages">
        {PAGES.map((page) => <a key={page} href={format(page)} aria-current={route.value.page === page ? "page" : undefined}>{TITLES[page]}</a>)}
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
