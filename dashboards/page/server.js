// The server's answers. An error in one is thrown with its own text; no answer means no server.
// The token stands in the address that the terminal prints; the page keeps it and takes it out of
// the address, so that a copied link shows and does nothing.
const place = new URLSearchParams(location.hash.slice(1));
if (place.has("token")) {
  localStorage.setItem("token", place.get("token"));
  place.delete("token");
  history.replaceState(null, "", `#${place}`);
}
const TOKEN = localStorage.getItem("token") ?? "";
export const acts = TOKEN !== "";

export async function ask(path, parameters = {}) {
  const query = new URLSearchParams(Object.entries(parameters).filter(([, value]) => value !== ""));
  return answered(fetch(query.size ? `${path}?${query}` : path));
}

// Ask the server to do something with a sweep or a run; return what it says.
export async function send(action, name, text = "") {
  const headers = { "Content-Type": "application/json", "X-Tread-Lab-Token": TOKEN };
  const body = JSON.stringify({ action, name, text });
  return (await answered(fetch("api/act", { method: "POST", headers, body }))).said;
}

async function answered(request) {
  const answer = await request.catch(() => {
    throw new Error("the server does not answer");
  });
  const tree = await answer
    .json()
    .catch(() => ({ error: `the server's answer broke off (${answer.status})` }));
  if (!answer.ok || tree.error) throw new Error(tree.error ?? answer.statusText);
  return tree;
}
