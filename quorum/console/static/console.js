// The frame of every page: navigation, verdict, the time that is looked at.
import { html, render, useEffect, useRef, useState } from "./libraries.js";
import { Dialogs, done } from "./actions.js";
import { Group, Groups } from "./groups.js";
import { Overview } from "./overview.js";
import { Main } from "./parts.js";
import { Partitions } from "./partitions.js";
import { Runs } from "./runs.js";
import { address, asOf, get, hrefOf, listen, live, refused, session, setParams, signIn } from "./state.js";
import { plain, timeText } from "./text.js";
import { Topic, Topics } from "./topics.js";
import { Timeline } from "./timeline.js";
import { Znodes } from "./znodes.js";

const PAGES = [
  ["overview", "Overview", Overview],
  ["topics", "Topics", Topics, Topic],
  ["partitions", "Partitions", Partitions],
  ["groups", "Groups", Groups, Group],
  ["znodes", "Znodes", Znodes],
  ["timeline", "Timeline", Timeline],
  ["runs", "Runs", Runs],
];

function Frame() {
  const { page, name } = address.value;
  const found = PAGES.find(([id]) => id === page);
  const bar = useRef(null);
  useEffect(() => {
    // Where the screen is narrow, the link of this page may be out of sight.
    const link = bar.current.querySelector("[aria-current]");
    if (link) bar.current.scrollLeft = link.offsetLeft - (bar.current.clientWidth - link.offsetWidth) / 2;
  }, [page]);
  const Page = (name === null ? found?.[2] : found?.[3]) ?? Nothing;
  return html`<a class="skip" href="#main" onClick=${(event) => (event.preventDefault(), document.getElementById("main").focus())}>Skip to the page</a>
    <header><div class="bar">
      <a class="brand" href=${hrefOf("overview")}><img src="icon.svg" alt="" width="24" height="24" />Quorate</a>
      <nav aria-label="Main" ref=${bar}>
        ${PAGES.map(([id, text]) => html`<a key=${id} href=${hrefOf(id)} aria-current=${id === page ? "page" : null}>${text}</a>`)}
      </nav>
      ${session.value?.read_only && html`<span class="chip role">read only</span>`}
      ${refused.value && html`<${SignIn} />`}
    </div>
    <${Verdict} />
    <${AsOf} /></header>
    <${Page} key=${`${page}/${name}`} name=${name} />
    <p role="status" class=${done.value ? "toast shown" : "toast"}>${plain(done.value)}</p>
    <${Dialogs} />`;
}

function SignIn() {
  const [token, setToken] = useState("");
  return html`<form class="sign-in" onSubmit=${(event) => (event.preventDefault(), signIn(token))}>
    <input type="password" aria-label="Token of the admin port" placeholder="Token" autocomplete="off" value=${token} onInput=${(event) => setToken(event.currentTarget.value)} />
    <button>Sign in</button>
  </form>`;
}

function Nothing() {
  return html`<${Main} page=${address.value.page} title="Not found" state="empty"><h1>There is no such page</h1><p><a href=${hrefOf("overview")}>To the overview</a></p><//>`;
}

function Verdict() {
  const { verdict, check, sentence } = live.value;
  if (!verdict) return html`<div class="verdict waiting"></div>`;
  return html`<a class="verdict ${verdict} ${asOf() === null ? "" : "of-now"}" href=${hrefOf("overview", null, { as_of: null })} data-testid="verdict" data-verdict=${verdict}
    data-check=${check}>${plain(sentence)}</a>`;
}

/** Moves the whole console back in time. */
function AsOf() {
  const { zxid, first_zxid: first } = live.value;
  const past = asOf();
  const [dragged, setDragged] = useState(null);
  const [moment, setMoment] = useState(null);
  const timer = useRef(null);
  const shown = dragged ?? past ?? zxid;
  useEffect(() => {
    if (past === null) return setMoment(null);
    let gone = false;
    get("moment", { zxid: past }).then((found) => !gone && setMoment(found.ts_ms), () => {});
    return () => (gone = true);
  }, [past]);
  const go = (value) => {
    clearTimeout(timer.current);
    setDragged(null);
    setParams({ as_of: value === live.peek().zxid ? undefined : value });
  };
  const drag = (event) => {
    const value = event.currentTarget.value;
    setDragged(value);
    clearTimeout(timer.current);
    timer.current = setTimeout(() => go(value), 250);
  };
  return html`<div class=${past === null ? "as-of" : "as-of past"}>
    <label for="as-of">As of</label>
    <input id="as-of" type="range" aria-label="As of" min=${first} max=${zxid} value=${shown} onInput=${drag}
      aria-valuetext=${past === null ? "now" : `zxid ${shown}`} />
    <span class="moment">${past === null && dragged === null ? `now · zxid ${zxid}` : `zxid ${shown}${moment && dragged === null ? ` · ${timeText(moment)}` : ""}`}</span>
    <button disabled=${past === null} onClick=${() => setParams({ as_of: undefined })}>Now</button>
  </div>`;
}

done.subscribe((text) => {
  clearTimeout(done.timer);
  if (text) done.timer = setTimeout(() => (done.value = ""), 8000);
});
listen();
render(html`<${Frame} />`, document.getElementById("console"));
