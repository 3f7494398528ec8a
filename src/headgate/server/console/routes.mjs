// The pages by their addresses, and the navigation. A page is a module in pages/ whose default is a component; it gets the
// names of its path (`:stream`) as properties, and `query`.

const ROUTES = [
  { path: [], title: "Overview", load: () => import("./pages/overview.mjs") },
  { path: ["streams"], title: "Streams", load: () => import("./pages/streams.mjs") },
  { path: ["streams", ":stream"], title: "Stream", load: () => import("./pages/stream.mjs") },
  { path: ["messages"], title: "Messages", load: () => import("./pages/messages.mjs") },
  { path: ["messages", ":stream"], title: "Messages", load: () => import("./pages/messages.mjs") },
  { path: ["why"], title: "Why not?", load: () => import("./pages/why.mjs") },
  { path: ["consumers"], title: "Consumers", load: () => import("./pages/consumers.mjs") },
]

/** What the sidebar lists, in groups; `tag` is a tag that a user needs to see the entry. */
export const NAVIGATION = [
  ["", [{ title: "Overview", icon: "overview", parts: [] }]],
  [
    "Data",
    [
      { title: "Streams", icon: "streams", parts: ["streams"] },
      { title: "Messages", icon: "messages", parts: ["messages"] },
      { title: "Consumers", icon: "consumers", parts: ["consumers"] },
      { title: "Why not?", icon: "why", parts: ["why"] },
    ],
  ],
]

/** The page of a path, with the names in it; undefined if there is none. */
export function routeOf(parts) {
  for (const route of ROUTES) {
    if (route.path.length !== parts.length) continue
    const names = {}
    const isIt = route.path.every((part, at) => {
      if (!part.startsWith(":")) return part === parts[at]
      names[part.slice(1)] = parts[at]
      return true
    })
    if (isIt) return { ...route, names }
  }
}
