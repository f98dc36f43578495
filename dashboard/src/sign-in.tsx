// Signing in with a key, or a token of an identity provider. The server turns it into a cookie.

import { useSignal } from "@preact/signals";
import { explain, signIn } from "./api";

export function SignIn({ onDone, why }: { onDone: () => void; why: string | null }) {
  const failure = useSignal<string | null>(why);
  const isBusy = useSignal(false);
  const submit = async (form: HTMLFormElement): Promise<void> => {
    const input = form.elements.namedItem("credential") as HTMLInputElement;
    isBusy.value = true;
    failure.value = null;
    try {
      await signIn(input.value.trim());
      input.value = "";
      onDone();
    } catch (error) {
      failure.value = explain(error);
    } finally {
      isBusy.value = false;
    }
  };
  return (
    <main class="sign-in">
      <h1>Mainspring</h1>
      <form
        onSubmit={(event) => {
          event.preventDefault();
          void submit(event.currentTarget);
        }}
      >
        <label>
          Key, or token of your identity provider
          <input name="credential" type="password" autocomplete="off" required spellcheck={false} autofocus />
        </label>
        <button type="submit" class="button primary" disabled={isBusy.value}>
          Sign in
        </button>
        {failure.value ? (
          <p class="failure" role="alert">
            {failure.value}
          </p>
        ) : null}
      </form>
      <p class="muted">
        An administrator creates a key with <code>mainspring keys create NAME --role viewer</code>. On your own machine,{" "}
        <code>mainspring ui</code> signs you in by itself.
      </p>
    </main>
  );
}
