// The server's answers. An error in one is thrown with its own text; no answer means no server.
export async function ask(path, parameters = {}) {
  const query = new URLSearchParams(Object.entries(parameters).filter(([, value]) => value !== ""));
  const answer = await fetch(query.size ? `${path}?${query}` : path).catch(() => {
    throw new Error("the server does not answer");
  });
  const tree = await answer
    .json()
    .catch(() => ({ error: `the server's answer broke off (${answer.status})` }));
  if (!answer.ok || tree.error) throw new Error(tree.error ?? answer.statusText);
  return tree;
}
