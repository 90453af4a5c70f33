//! The commands that install what a node lacks, by its distribution. Pure.

use crate::facts::SystemFacts;

/// What is lacking.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Package {
    /// `iptables`.
    Iptables,
    /// `ip`.
    Ip,
    /// The types of containers for the policy of SELinux.
    ContainerSelinux,
    /// Modules of the kernel that are not in its first package.
    KernelModules,
}

/// The sentence with the command, where the distribution is known.
pub(super) fn install(package: Package, system: &SystemFacts) -> String {
    let is = |id: &str| system.distribution.contains(id);
    let kernel = &system.kernel;
    let command = if is("debian") || is("ubuntu") {
        let name = match package {
            Package::Iptables => "iptables".to_owned(),
            Package::Ip => "iproute2".to_owned(),
            // Debian's cloud kernels have no package with extra modules: the usual kernel has all of them.
            Package::KernelModules if is("ubuntu") => format!("linux-modules-extra-{kernel}"),
            Package::KernelModules if kernel.contains("cloud") => {
                return "`sudo apt install linux-image-$(dpkg --print-architecture)` on the node, and restart it \
                        with that kernel"
                    .to_owned();
            }
            Package::ContainerSelinux | Package::KernelModules => return by_hand(package),
        };
        format!("sudo apt install {name}")
    } else if is("rhel") || is("fedora") || is("centos") {
        let name = match package {
            Package::Iptables => "iptables-nft".to_owned(),
            Package::Ip => "iproute".to_owned(),
            Package::ContainerSelinux => "container-selinux".to_owned(),
            Package::KernelModules => format!("kernel-modules-extra-{kernel}"),
        };
        format!("sudo dnf install {name}")
    } else if is("suse") || is("opensuse") || is("sles") {
        let name = match package {
            Package::Iptables => "iptables",
            Package::Ip => "iproute2",
            Package::ContainerSelinux => "container-selinux",
            // `kernel-default-base` leaves them out.
            Package::KernelModules => {
                return "`sudo zypper install kernel-default` on the node, and restart it"
                    .to_owned();
            }
        };
        format!("sudo zypper install {name}")
    } else if is("arch") {
        match package {
            Package::Iptables => "sudo pacman -S iptables-nft".to_owned(),
            Package::Ip => "sudo pacman -S iproute2".to_owned(),
            Package::ContainerSelinux | Package::KernelModules => return by_hand(package),
        }
    } else {
        return by_hand(package);
    };
    format!("`{command}` on the node")
}

fn by_hand(package: Package) -> String {
    match package {
        Package::Iptables => "install the node's package `iptables`",
        Package::Ip => "install the node's package that has `ip` (`iproute2`, `iproute`)",
        Package::ContainerSelinux => {
            "install the module `container` of the node's SELinux policy (the package `container-selinux`)"
        }
        Package::KernelModules => "use a kernel of the distribution that has these modules",
    }
    .to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hint_is_for_the_distribution_of_the_node() {
        let on = |ids: &[&str], kernel: &str| SystemFacts {
            distribution: ids.iter().map(|id| (*id).to_owned()).collect(),
            kernel: kernel.to_owned(),
            ..SystemFacts::default()
        };
        let rhel = on(
            &["rocky", "rhel", "centos", "fedora"],
            "6.12.0-55.el10.x86_64",
        );
        let ubuntu = on(&["ubuntu", "debian"], "6.8.0-31-generic");
        let debian = on(&["debian"], "6.1.0-25-cloud-amd64");
        let other = on(&["flatcar"], "6.6.1");
        for (package, system, hint) in [
            (
                Package::Iptables,
                &rhel,
                "`sudo dnf install iptables-nft` on the node",
            ),
            (
                Package::KernelModules,
                &rhel,
                "`sudo dnf install kernel-modules-extra-6.12.0-55.el10.x86_64` on the node",
            ),
            (
                Package::KernelModules,
                &ubuntu,
                "`sudo apt install linux-modules-extra-6.8.0-31-generic` on the node",
            ),
            (
                Package::KernelModules,
                &debian,
                "`sudo apt install linux-image-$(dpkg --print-architecture)` on the node, and restart it with that \
                 kernel",
            ),
            (
                Package::Ip,
                &ubuntu,
                "`sudo apt install iproute2` on the node",
            ),
            (
                Package::Iptables,
                &other,
                "install the node's package `iptables`",
            ),
        ] {
            assert_eq!(install(package, system), hint);
        }
    }
}
