// The address of a view: `#/streams/orders?from=last`. Parts of the path are names and percent-encoded, so a name may
// hold a slash. Everything that a view shows by choice is in the query, so an address can be sent to a colleague.
//
// The address is behind `#` because the server then has one page, wherever a proxy puts it.

import { useEffect, useState } from "./vendor/hooks.mjs"

const listeners = new Set()
addEventListener("hashchange", () => listeners.forEach((listen) => listen()))

/** Where we are: the decoded `parts` of the path, and the `query` (URLSearchParams). */
export function place() {
  const [path, query = ""] = location.hash.replace(/^#\/?/, "").split(/\?(.*)/s)
  return { parts: path.split("/").filter(Boolean).map(decoded), query: new URLSearchParams(query) }
}

function decoded(part) {
  try {
    return decodeURIComponent(part)
  } catch {
    return part
  }
}

/** The address of a view: `href(["streams", name], { tab: "consumers" })`; lists repeat their key, null leaves it out. */
export function href(parts, query = {}) {
  const search = new URLSearchParams()
  for (const [name, value] of query instanceof URLSearchParams ? query : Object.entries(query)) {
    for (const each of Array.isArray(value) ? value : [value]) {
      if (each !== null && each !== undefined && each !== "") search.append(name, each)
    }
  }
  const text = search.toString()
  return `#/${parts.map(encodeURIComponent).join("/")}${text && `?${text}`}`
}

/** Go to an address that `href` made; with `isReplaced`, "back" does not return to the one before. */
export function go(address, { isReplaced = false } = {}) {
  if (!isReplaced) {
    location.hash = address
    return
  }
  history.replaceState(null, "", address)
  listeners.forEach((listen) => listen())
}

/** The place, again with each change of it. */
export function usePlace() {
  const [, turn] = useState(0)
  useEffect(() => {
    const listen = () => turn((count) => count + 1)
    listeners.add(listen)
    return () => listeners.delete(listen)
  }, [])
  return place()
}

/** Change parts of the query: `change({ sort: "name", page: null })`. Stays in the view, so "back" leaves the view. */
export function change(changes) {
  const { parts, query } = place()
  for (const [name, value] of Object.entries(changes)) {
    query.delete(name)
    for (const each of Array.isArray(value) ? value : [value]) {
      if (each !== null && each !== undefined && each !== "") query.append(name, each)
    }
  }
  go(href(parts, query), { isReplaced: true })
}
