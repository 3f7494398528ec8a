// The pages by their addresses, and the navigation. A page is a module in pages/ whose default is a component; it gets the
// names of its path (`:stream`) as properties, and `query`.

const ROUTES = [
  { path: [], title: "Overview", load: () => import("./pages/overview.mjs") },
  { path: ["streams"], title: "Streams", load: () => import("./pages/streams.mjs") },
  { path: ["streams", ":stream"], title: "Stream", load: () => import("./pages/stream.mjs") },
  { path: ["messages"], title: "Messages", load: () => import("./pages/messages.mjs") },
  { path: ["messages", ":stream"], title: "Messages", load: () => import("./pages/messages.mjs") },
  { path: ["topics"], title: "Topics and queues", load: () => import("./pages/topics.mjs") },
  { path: ["topics", ":topic"], title: "Topic", load: () => import("./pages/topic.mjs") },
  { path: ["topics", ":topic", ":subscription"], title: "Subscription", load: () => import("./pages/subscription.mjs") },
  { path: ["topics", ":topic", ":subscription", "rules"], title: "New rule", load: () => import("./pages/rule.mjs") },
  { path: ["topics", ":topic", ":subscription", "rules", ":rule"], title: "Rule", load: () => import("./pages/rule.mjs") },
  { path: ["dead-letters"], title: "Dead letters", load: () => import("./pages/dead_letters.mjs") },
  { path: ["dead-letters", ":topic", ":subscription"], title: "Dead letters", load: () => import("./pages/dead_letters.mjs") },
  { path: ["rocketmq"], title: "Consumer groups", load: () => import("./pages/rocketmq.mjs") },
  { path: ["rocketmq", "groups", ":group"], title: "Consumer group", load: () => import("./pages/group.mjs") },
  { path: ["rocketmq", "groups", ":group", "dead-letters"], title: "Dead letters", load: () => import("./pages/dead_letters.mjs") },
  { path: ["rocketmq", "topics", ":topic"], title: "Topic of RocketMQ", load: () => import("./pages/message_topic.mjs") },
  { path: ["pipelines"], title: "Pipelines", load: () => import("./pages/pipelines.mjs") },
  { path: ["pipelines", ":pipeline"], title: "Pipeline", load: () => import("./pages/pipelines.mjs") },
  { path: ["connections"], title: "Connections", load: () => import("./pages/connections.mjs") },
  { path: ["users"], title: "Users", load: () => import("./pages/users.mjs") },
  { path: ["tokens"], title: "Tokens", load: () => import("./pages/tokens.mjs") },
  { path: ["audit"], title: "Audit", load: () => import("./pages/audit.mjs") },
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
      { title: "Topics and queues", icon: "topics", parts: ["topics"] },
      { title: "Dead letters", icon: "dead-letters", parts: ["dead-letters"] },
      { title: "Consumer groups", icon: "groups", parts: ["rocketmq"] },
      { title: "Consumers", icon: "consumers", parts: ["consumers"] },
      { title: "Why not?", icon: "why", parts: ["why"] },
    ],
  ],
  [
    "Operation",
    [
      { title: "Pipelines", icon: "pipelines", parts: ["pipelines"] },
      { title: "Connections", icon: "connections", parts: ["connections"] },
      { title: "Users", icon: "users", parts: ["users"], tag: "administrator" },
      { title: "Tokens", icon: "tokens", parts: ["tokens"] },
      { title: "Audit", icon: "audit", parts: ["audit"], tag: "administrator" },
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
