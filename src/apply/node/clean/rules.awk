# Reads what iptables-save wrote; writes, for iptables-restore, what takes our chains and the rules
# that lead to them away. ENVIRON: NETWORKS, the names of our CNI networks, and IDS, ids of our pods,
# one a line; FLANNEL and CALICO, `no` when flannel or calico was here before us.
#
# A comment is any text, line breaks too: only a line that begins and ends outside of quotes is a
# rule, and the word after `--comment` is never looked at as an option.

# The words of a line, quotes kept; returns how many.
function words(line, out,    i, c, n, quoted, word) {
  n = 0; quoted = 0; word = ""
  for (i = 1; i <= length(line); i++) {
    c = substr(line, i, 1)
    if (c == "\\" && quoted) { word = word c substr(line, i + 1, 1); i++; continue }
    if (c == "\"") quoted = !quoted
    if (c == " " && !quoted) { if (word != "") out[++n] = word; word = ""; continue }
    word = word c
  }
  if (word != "") out[++n] = word
  return n
}

# How many quotes a line has that are not escaped, and whether it ends inside of them.
function ends_inside(line, inside,    i, c) {
  for (i = 1; i <= length(line); i++) {
    c = substr(line, i, 1)
    if (c == "\\" && inside) { i++; continue }
    if (c == "\"") inside = !inside
  }
  return inside
}

# Does a comment name our network, or one of our pods?
function names_us(comment,    i) {
  for (i = 1; i <= nets; i++)
    if (net[i] != "" && index(comment, "name: \\\"" net[i] "\\\"")) return 1
  for (i = 1; i <= ids; i++) if (id[i] != "" && index(comment, "id: \\\"" id[i] "\\\"")) return 1
  return 0
}

function ours(chain) {
  if (chain ~ /^KUBE-/) return 1
  if (chain ~ /^FLANNEL-/) return ENVIRON["FLANNEL"] != "no"
  if (chain ~ /^cali-/) return ENVIRON["CALICO"] != "no"
  return (table, chain) in cni
}

BEGIN { ids = split(ENVIRON["IDS"], id, "\n"); nets = split(ENVIRON["NETWORKS"], net, "\n") }
{
  was = inside
  inside = ends_inside($0, inside)
  if (was || inside) next
}
/^\*/ { table = substr($0, 2); tables[++count] = table }
/^:/ { chain = substr($1, 2); chains[table, ++size[table]] = chain }
/^-A / {
  n = words($0, w)
  target = comment = ""
  for (i = 3; i < n; i++) {
    if (w[i] == "--comment") { comment = w[++i]; continue }
    if (w[i] == "-j" || w[i] == "-g") { target = w[i + 1]; break }
  }
  k = ++rules[table]
  from[table, k] = w[2]; to[table, k] = target; text[table, k] = substr($0, 4)
  # A plugin's chain of one pod: the rule that leads there says whose it is.
  if (target ~ /^CNI-[0-9a-f]+$/ || target ~ /^CNI-(DN|SN)-[0-9a-f]+$/)
    if (names_us(comment)) cni[table, target] = 1
}
END {
  for (t = 1; t <= count; t++) {
    table = tables[t]
    # The chains that all pods' ports share: ours when only ours lead through them.
    foreign = 0; mine = 0
    for (k = 1; k <= rules[table]; k++)
      if (to[table, k] ~ /^CNI-DN-/) { if (ours(to[table, k])) mine = 1; else foreign = 1 }
    if (mine && !foreign) {
      cni[table, "CNI-HOSTPORT-DNAT"] = cni[table, "CNI-HOSTPORT-SETMARK"] = 1
      cni[table, "CNI-HOSTPORT-MASQ"] = 1
    }
    out = ""
    for (k = 1; k <= rules[table]; k++)
      if (ours(to[table, k]) && !ours(from[table, k])) out = out "-D " text[table, k] "\n"
    flush = gone = ""
    for (c = 1; c <= size[table]; c++) {
      chain = chains[table, c]
      if (ours(chain)) { flush = flush "-F " chain "\n"; gone = gone "-X " chain "\n" }
    }
    if (out flush != "") printf "*%s\n%s%s%sCOMMIT\n", table, out, flush, gone
  }
}
