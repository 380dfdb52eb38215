import { useState } from "preact/hooks";
import { Refused, wordsOf } from "../api/client.ts";
import { address } from "../api/client.ts";
import { signIn, signInNote } from "../store/session.ts";

/** Ask for an API key, and try it before it is kept. */
export function SignIn() {
  const [entered, setEntered] = useState("");
  const [failed, setFailed] = useState("");
  const [isBusy, setBusy] = useState(false);
  const submit = async (event: Event): Promise<void> => {
    event.preventDefault();
    setBusy(true);
    setFailed("");
    const trimmed = entered.trim();
    try {
      const answer = await fetch(address("/v1/whoami"), { headers: { Authorization: `Bearer ${trimmed}` }, credentials: "omit" });
      if (answer.ok) signIn(trimmed);
      else if (answer.status === 401) throw new Refused(401, "", "The root does not know this key.");
      else throw new Refused(answer.status, "", `The root answered ${answer.status}; try again.`);
    } catch (broken) {
      setFailed(wordsOf(broken));
    } finally {
      setBusy(false);
    }
  };
  return (
    <main class="sign-in" id="main">
      <form class="panel" onSubmit={(event) => void submit(event)}>
        <h1>ScheduleMesh</h1>
        <p class="muted">Runs, quotas, meshes and queues of this federation, as far as your key reaches.</p>
        <label for="key">API key</label>
        <input id="key" type="password" autocomplete="off" spellcheck={false} required placeholder="smk_…" value={entered} onInput={(event) => setEntered(event.currentTarget.value)} />
        {(failed || signInNote.value) && <p class="refused" role="alert">{failed || signInNote.value}</p>}
        <button type="submit" class="primary" disabled={isBusy || !entered.trim()}>{isBusy ? "Signing in…" : "Sign in"}</button>
        <p class="muted small">The key stays in this tab until you close it. <code>schedulemesh keys create TENANT</code> makes one; <code>'*'</code> in place of the tenant makes an operator's.</p>
      </form>
    </main>
  );
}
