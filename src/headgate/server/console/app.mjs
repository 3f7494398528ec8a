// The page: login, navigation, and the view that the address names.

import { useEffect, useRef, useState } from "./vendor/hooks.mjs"
import { render } from "./vendor/preact.mjs"
import { Problem, hasTag, login, logout, usePolled, useSession } from "./api.mjs"
import { Field, Icon, Page, Skeleton, Toasts, Trouble } from "./components.mjs"
import { html } from "./html.mjs"
import { href, usePlace } from "./router.mjs"
import { NAVIGATION, routeOf } from "./routes.mjs"

function App() {
  const { session, reason } = useSession()
  if (session === undefined) return html`<div class="waiting"><${Skeleton} /></div>`
  return html`${session === null ? html`<${Login} reason=${reason} />` : html`<${Console} session=${session} />`}<${Toasts} />`
}

function Login({ reason }) {
  const [state, setState] = useState({ said: reason, isSent: false })
  const user = useRef(null)
  const password = useRef(null)
  useEffect(() => {
    document.title = "Log in · Headgate"
    user.current.focus()
  }, [])
  const enter = async (event) => {
    event.preventDefault()
    const given = new FormData(event.target)
    setState({ said: "", isSent: true })
    try {
      await login(given.get("user"), given.get("password"))
    } catch (problem) {
      const said =
        problem.status === 401
          ? "The server knows no such user with this password. After many wrong logins it looks at none for a minute."
          : problem.message
      setState({ said, isSent: false })
      // A wrong password is typed again, in place of the wrong one.
      password.current?.focus()
      password.current?.select()
    }
  }
  return html`<main class="login">
    <form onSubmit=${enter} method="post">
      <h1><${Mark} />Headgate</h1>
      <p class="lead">Log in with a user of this server.</p>
      <${Field} label="User">
        ${(props) => html`<input ...${props} ref=${user} name="user" autocomplete="username" autocapitalize="none" spellcheck=${false} required />`}
      </${Field}>
      <${Field} label="Password">
        ${(props) => html`<input ...${props} ref=${password} name="password" type="password" autocomplete="current-password" />`}
      </${Field}>
      <p class="login-said" role="alert">${state.said}</p>
      <button type="submit" class="primary" disabled=${state.isSent}>${state.isSent ? "Logging in …" : "Log in"}</button>
    </form>
  </main>`
}

function Mark() {
  return html`<svg class="mark" viewBox="0 0 20 20" aria-hidden="true" focusable="false">
    <path d="M3 2v16M17 2v16M3 5h14" /><path class="gate" d="M7 5v6h6V5" /><path class="water" d="M5.500 15c1.500-1.300 3 1.300 4.500 0s3-1.300 4.500 0" />
  </svg>`
}

function Console({ session }) {
  const [isOpen, setOpen] = useState(false)
  const { parts, query } = usePlace()
  const route = routeOf(parts)
  const key = `${route?.title}/${JSON.stringify(parts)}`
  useEffect(() => {
    setOpen(false)
    scrollTo(0, 0)
  }, [key])
  return html`
    <a class="skip" href="#content" onClick=${skip}>Skip to the content</a>
    <header class="top">
      <a class="brand" href="#/"><${Mark} />Headgate</a>
      <button type="button" class="quiet" aria-expanded=${isOpen} aria-controls="navigation" onClick=${() => setOpen(!isOpen)}>
        <${Icon} name=${isOpen ? "close" : "menu"} />Menu
      </button>
    </header>
    <div class="sidebar" id="navigation" data-open=${isOpen}>
      <header><a class="brand" href="#/"><${Mark} />Headgate</a></header>
      <nav aria-label="Views">
        ${NAVIGATION.map(
          ([group, views]) => html`
            ${group && html`<p class="nav-group">${group}</p>`}
            <ul>
              ${views
                .filter((one) => !one.tag || hasTag(one.tag))
                .map(
                  (one) => html`<li>
                    <a href=${href(one.parts)} aria-current=${(parts[0] ?? "") === (one.parts[0] ?? "") ? "page" : undefined}>
                      <${Icon} name=${one.icon} />${one.title}
                    </a>
                  </li>`,
                )}
            </ul>
          `,
        )}
      </nav>
      <${Foot} session=${session} />
    </div>
    <main id="content" tabindex="-1">
      ${route ? html`<${View} key=${key} route=${route} query=${query} />` : html`<${Unknown} />`}
    </main>
  `
}

function skip(event) {
  // The address names the view, so the link must not change it.
  event.preventDefault()
  document.getElementById("content").focus()
}

function Foot({ session }) {
  const { data } = usePolled("overview", { everyMs: 30_000 })
  return html`<footer class="foot">
    <p><bdi>${session.user}</bdi>${session.tags?.length > 0 && html`<span class="note">${session.tags.join(", ")}</span>`}</p>
    <button type="button" class="quiet" onClick=${logout}>Log out</button>
    ${data && html`<p class="note">Headgate ${data.version}</p>`}
  </footer>`
}

/** A page; its module is loaded when it is first opened. */
function View({ route, query }) {
  const [page, setPage] = useState(null)
  useEffect(() => {
    route.load().then(
      (module) => setPage(() => module.default),
      () => setPage(() => NotLoaded),
    )
  }, [])
  if (!page) return html`<${Skeleton} lines=${6} />`
  return html`<${page} ...${route.names} query=${query} />`
}

const NotLoaded = () =>
  html`<${Trouble} problem=${new Problem(0, { detail: "This page cannot be loaded." })} retry=${() => location.reload()} />`

const Unknown = () => html`<${Page} title="There is no such page" lead="The address may be of another version, or mistyped."><p><a href="#/">To the overview</a></p></${Page}>`

render(html`<${App} />`, document.getElementById("app"))
