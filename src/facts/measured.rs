//! What a node is measured for before a cluster is made of it, and how its answer is understood. Pure. How it is
//! measured: [`crate::survey`].

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    time::Duration,
};

use super::{Unreachable, system::sections};
use crate::model::RegistryLogin;

/// The script: unprivileged, one round trip. It writes where [`MeasureRequest::disk`] says so.
pub const SCRIPT: &str = concat!(include_str!("each.sh"), include_str!("measure.sh"));

/// What is measured on a node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MeasureRequest {
    /// The disk with this folder is written to.
    pub disk: Option<&'static str>,
    /// Addresses of other nodes, and how long packets to them are, in bytes.
    pub packets: BTreeMap<IpAddr, u32>,
    /// Images that the node's Docker asks their registries for, with the login for each.
    pub images: BTreeMap<String, Option<RegistryLogin>>,
}

impl MeasureRequest {
    /// The arguments of [`SCRIPT`]; empty where it has nothing to do.
    pub fn arguments(&self) -> Vec<String> {
        let packets = self.packets.iter();
        let packets = packets.map(|(address, bytes)| format!("packets={address}/{bytes}"));
        let disk = self.disk.iter().map(|folder| format!("disk={folder}"));
        disk.chain(packets).collect()
    }
}

/// What was measured on a node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Measured {
    /// About how long a question and its answer are under way.
    pub trip: Duration,
    /// The disk of [`MeasureRequest::disk`].
    pub disk: DiskSpeed,
    /// Packets that were lost because they are too long.
    pub lost: BTreeSet<LostPackets>,
    /// Images that a registry does not give out, and why.
    pub refused: BTreeMap<String, Unreachable>,
    /// Why part of it is not known.
    pub untold: Option<String>,
}

/// How fast a disk is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DiskSpeed {
    /// It was not measured, or the node has no program for it.
    #[default]
    Unknown,
    /// The user has no folder on it.
    Elsewhere,
    /// Of a hundred writes of 2300 bytes, each waited for, 99 took no longer.
    Writes(Duration),
}

/// Packets to another node that do not arrive, while short ones do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LostPackets {
    /// Where to.
    pub address: IpAddr,
    /// How long they were, in bytes.
    pub bytes: u32,
    /// How long they may be; `None` where none of those that were tried arrived.
    pub fits: Option<u32>,
}

impl Measured {
    /// What [`SCRIPT`] printed. `None` when it was cut off.
    pub fn parse(output: &str) -> Option<Self> {
        let sections = sections(output);
        sections.get("end")?;
        let lines = |name: &str| {
            let text = sections.get(name).map_or("", String::as_str);
            text.lines().map(str::trim)
        };
        Some(Self {
            disk: disk(lines("disk")),
            lost: lines("packets").filter_map(lost).collect(),
            ..Self::default()
        })
    }
}

fn disk<'a>(lines: impl Iterator<Item = &'a str> + Clone) -> DiskSpeed {
    if lines.clone().any(|line| line == "elsewhere") {
        return DiskSpeed::Elsewhere;
    }
    let took = lines.filter_map(|line| Duration::try_from_secs_f64(line.parse().ok()?).ok());
    let mut took: Vec<Duration> = took.collect();
    took.sort_unstable();
    let place = (took.len() * 99).div_ceil(100).saturating_sub(1);
    took.get(place)
        .map_or(DiskSpeed::Unknown, |slow| DiskSpeed::Writes(*slow))
}

/// `192.0.2.7/1500 1400`.
fn lost(line: &str) -> Option<LostPackets> {
    let (packet, fits) = line.split_once(' ')?;
    let (address, bytes) = packet.split_once('/')?;
    let fits: u32 = fits.parse().ok()?;
    Some(LostPackets {
        address: address.parse().ok()?,
        bytes: bytes.parse().ok()?,
        fits: (fits > 0).then_some(fits),
    })
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    fn on_this_machine(request: &MeasureRequest) -> Measured {
        let output = Command::new("sh")
            .args(["-c", SCRIPT, "sh"])
            .args(request.arguments())
            .output()
            .unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stderr), "");
        let text = String::from_utf8(output.stdout).unwrap();
        Measured::parse(&text).expect("a whole answer")
    }

    #[test]
    fn the_disk_of_this_machine_is_measured_and_nothing_stays() {
        let home = tempfile::tempdir().unwrap();
        let output = Command::new("sh")
            .args([
                "-c",
                SCRIPT,
                "sh",
                &format!("disk={}", home.path().display()),
            ])
            .env("HOME", home.path())
            .output()
            .unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let measured = Measured::parse(&text).unwrap();
        assert!(
            matches!(measured.disk, DiskSpeed::Writes(took) if !took.is_zero()),
            "{text}"
        );
        assert_eq!(home.path().read_dir().unwrap().count(), 0);
    }

    #[test]
    fn a_folder_that_is_not_there_yet_is_on_the_disk_of_the_one_above() {
        let request = MeasureRequest {
            disk: Some("/proc/is-not-there/etcd"),
            ..MeasureRequest::default()
        };
        assert_eq!(on_this_machine(&request).disk, DiskSpeed::Elsewhere);
    }

    #[test]
    fn nothing_is_measured_that_was_not_asked_for() {
        let nothing = on_this_machine(&MeasureRequest::default());
        assert_eq!(nothing, Measured::default());
    }

    #[test]
    fn the_slowest_of_a_hundred_does_not_count_and_the_next_does() {
        let told = |slow: usize| {
            let fast = std::iter::repeat_n("0.001", 100 - slow);
            let lines: Vec<&str> = fast.chain(std::iter::repeat_n("0.5", slow)).collect();
            Measured::parse(&format!("@@disk\n{}\n@@end\n", lines.join("\n")))
        };
        let speed = |slow| told(slow).unwrap().disk;
        assert_eq!(speed(0), DiskSpeed::Writes(Duration::from_millis(1)));
        assert_eq!(speed(1), DiskSpeed::Writes(Duration::from_millis(1)));
        assert_eq!(speed(2), DiskSpeed::Writes(Duration::from_millis(500)));
    }

    #[test]
    fn half_an_answer_is_none() {
        assert_eq!(Measured::parse("@@disk\n0.001\n@@packets\n"), None);
        let odd = "@@disk\n4.1e-05\nno number\n-1\n@@packets\n192.0.2.7/1500 1400\n192.0.2.8/1500 0\nhello\n@@end\n";
        let measured = Measured::parse(odd).unwrap();
        assert_eq!(measured.disk, DiskSpeed::Writes(Duration::from_micros(41)));
        let lost: Vec<_> = measured.lost.iter().map(|it| it.fits).collect();
        assert_eq!(lost, [Some(1400), None]);
    }
}
