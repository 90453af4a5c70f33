//! `cloud_provider`. Pure data.

use super::key::{Key, any, flag, later_section, number, section, text};

/// `cloud_provider`.
pub(super) const CLOUD_PROVIDER: &[Key] = &[
    text(
        "name",
        "`external`, or RKE's `external-aws`, `harvester` and `custom`, which have the same effect.",
    )
    .used(),
    flag(
        "useInstanceMetadataHostname",
        "Name nodes as the cloud's metadata service does.",
    ),
    later_section(
        "awsCloudProvider",
        "Settings for AWS.",
        &[
            any("global", "Settings of the whole cluster."),
            any("service_override", "Settings of single services."),
        ],
    )
    .refused(GONE),
    later_section("azureCloudProvider", "Settings for Azure.", AZURE).refused(GONE),
    later_section(
        "openstackCloudProvider",
        "Settings for OpenStack.",
        &[
            any("global", "How to log in.").secret(),
            any("load_balancer", "Settings of load balancers."),
            any("block_storage", "Settings of volumes."),
            any("route", "Settings of routes."),
            any("metadata", "Settings of the metadata service."),
        ],
    )
    .refused(GONE),
    later_section(
        "vsphereCloudProvider",
        "Settings for vSphere.",
        &[
            any("global", "How to log in.").secret(),
            any("virtual_center", "The servers, and how to log in.").secret(),
            any("network", "Settings of networks."),
            any("disk", "Settings of volumes."),
            any("workspace", "Where machines are created."),
        ],
    )
    .refused(GONE),
    section(
        "harvesterCloudProvider",
        "Settings for Harvester.",
        &[text(
            "cloud_config",
            "The file of its cloud provider, `/etc/kubernetes/cloud-config` on every node.",
        )
        .by_reference()
        .used()],
    ),
    text(
        "customCloudProvider",
        "The file of another cloud provider, `/etc/kubernetes/cloud-config` on every node.",
    )
    .by_reference()
    .used(),
];

const GONE: &str = "Kubernetes has no cloud provider built in any more: write `name: external`, and give these settings \
                    to the cloud's own controller manager";

/// The cloud provider of Azure documents them.
const AZURE: &[Key] = &[
    text("cloud", "As Azure documents it."),
    text("tenantId", "As Azure documents it."),
    text("subscriptionId", "As Azure documents it."),
    text("resourceGroup", "As Azure documents it."),
    text("location", "As Azure documents it."),
    text("vnetName", "As Azure documents it."),
    text("vnetResourceGroup", "As Azure documents it."),
    text("subnetName", "As Azure documents it."),
    text("securityGroupName", "As Azure documents it."),
    text("securityGroupResourceGroup", "As Azure documents it."),
    text("routeTableName", "As Azure documents it."),
    text("primaryAvailabilitySetName", "As Azure documents it."),
    text("vmType", "As Azure documents it."),
    text("primaryScaleSetName", "As Azure documents it."),
    text("aadClientId", "As Azure documents it."),
    text("aadClientSecret", "As Azure documents it.").secret(),
    text("aadClientCertPath", "As Azure documents it."),
    text("aadClientCertPassword", "As Azure documents it.").secret(),
    flag("cloudProviderBackoff", "As Azure documents it."),
    number("cloudProviderBackoffRetries", "As Azure documents it.").default("0"),
    number("cloudProviderBackoffExponent", "As Azure documents it.").default("0"),
    number("cloudProviderBackoffDuration", "As Azure documents it.").default("0"),
    number("cloudProviderBackoffJitter", "As Azure documents it.").default("0"),
    flag("cloudProviderRateLimit", "As Azure documents it."),
    number("cloudProviderRateLimitQPS", "As Azure documents it.").default("0"),
    number("cloudProviderRateLimitBucket", "As Azure documents it.").default("0"),
    flag("useInstanceMetadata", "As Azure documents it."),
    flag("useManagedIdentityExtension", "As Azure documents it."),
    text("userAssignedIdentityID", "As Azure documents it."),
    number("maximumLoadBalancerRuleCount", "As Azure documents it.").default("0"),
    text("loadBalancerSku", "As Azure documents it."),
    flag("excludeMasterFromStandardLB", "As Azure documents it."),
    text("tags", "As Azure documents it."),
];
