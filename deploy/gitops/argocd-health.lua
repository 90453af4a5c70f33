-- The health of what clusterprovisioner.rke.io has, for Argo CD. One script for Cluster, Kubeconfig and ClusterOperation.
-- Suspended: waits for a person on purpose (paused, or a plan that awaits approval).
-- Degraded: unhealthy, or a person must change something. Progressing: the operator is at work.

local function result(status, message)
  return { status = status, message = message or "" }
end

if obj.status == nil or obj.status.conditions == nil then
  if obj.metadata.deletionTimestamp ~= nil then
    return result("Progressing", "waits for the operator to delete it")
  end
  return result("Progressing", "waits for the operator")
end

local conditions = {}
for _, condition in ipairs(obj.status.conditions) do
  if condition.type ~= nil then
    conditions[condition.type] = condition
  end
end

local function is(kind, status)
  return conditions[kind] ~= nil and conditions[kind].status == status
end

local function reason(kind)
  if conditions[kind] == nil then
    return nil
  end
  return conditions[kind].reason
end

local function told(kind)
  local condition = conditions[kind]
  return (condition.reason or "") .. ": " .. (condition.message or "")
end

if is("Stalled", "True") then
  return result("Degraded", told("Stalled"))
end

if obj.metadata.deletionTimestamp ~= nil then
  if is("Deleting", "True") then
    return result("Progressing", told("Deleting"))
  end
  return result("Progressing", "waits for the operator to delete it")
end

if obj.metadata.generation ~= nil and obj.status.observedGeneration ~= obj.metadata.generation then
  return result("Progressing", "the operator has not seen the last edit yet")
end

-- What a Kubeconfig cannot get without a person.
local refused = {
  ClusterNotFound = true, SecretNotOurs = true, NameNotAllowed = true, NamespaceNotAllowed = true,
  GroupNotAllowed = true, ServerNotInCertificate = true,
}
if obj.kind == "Kubeconfig" then
  if is("Ready", "True") then
    return result("Healthy", told("Ready"))
  end
  if conditions["Ready"] == nil then
    return result("Progressing", "waits for the operator")
  end
  if refused[reason("Ready")] then
    return result("Degraded", told("Ready"))
  end
  return result("Progressing", told("Ready"))
end

if obj.kind == "ClusterOperation" then
  if is("Complete", "True") then
    return result("Healthy", told("Complete"))
  end
  if conditions["Complete"] == nil then
    return result("Progressing", "waits for the operator")
  end
  if reason("Complete") == "AwaitingApproval" or reason("Complete") == "Paused" then
    return result("Suspended", told("Complete"))
  end
  return result("Progressing", told("Complete"))
end

-- A run that only retries a fault does not hide it; any other does something about it.
local retries = { Retrying = true, HostUnavailable = true }
if is("Reconciling", "True") and not retries[reason("Reconciling")] then
  return result("Progressing", told("Reconciling"))
end

-- False, not Unknown: after a start of the operator nothing was seen yet.
for _, kind in ipairs({
  "Available", "NodesReachable", "EtcdHealthy", "ControlPlaneHealthy", "NodesHealthy", "AddonsApplied",
  "CertificatesValid",
}) do
  if is(kind, "False") and not is("Ready", "Unknown") and reason("Ready") ~= "NotProvisioned" then
    return result("Degraded", told(kind))
  end
end

if is("Paused", "True") then
  return result("Suspended", told("Paused"))
end

if reason("UpToDate") == "AwaitingApproval" then
  return result("Suspended", told("UpToDate"))
end

if is("Ready", "True") then
  return result("Healthy", told("Ready"))
end

if is("Reconciling", "True") then
  return result("Progressing", told("Reconciling"))
end

if conditions["Ready"] == nil then
  return result("Progressing", "waits for the operator")
end
return result("Progressing", told("Ready"))
