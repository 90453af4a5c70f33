//! What goes wrong with servers and what is between them, done to nodes and undone.
//!
//! Each fault can be asked for again, and [`Node::heal`] ends all of them. A node that is off, reboots
//! or is taken down loses those that are in its network. What one kernel cannot show: power that goes
//! keeps what the machine's page cache has, so nothing is learnt of fsync.

use std::{
    fs,
    net::Ipv4Addr,
    path::Path,
    thread::sleep,
    time::{Duration, Instant},
};

use crate::{Lab, LabError, Node, NodeState, cache, command::Run};

/// How long a node may take to boot.
const BOOT: Duration = Duration::from_mins(2);

/// How long a node that boots may take no command.
const TAKES_COMMANDS: Duration = Duration::from_secs(20);

/// The chain of what a node does not hear. It is the first that a packet meets, so it covers pods too,
/// and whoever sends sees nothing but silence.
const CHAIN: &str = "LAB-CUT";

/// The token bucket of a slow link: 1 MB/s.
pub(crate) const SLOW: &str = "root tbf rate 8mbit burst 32kb latency 400ms";

/// Fills what is left of the disk: first at one stroke, then the last blocks one by one.
const FILL: &str = r#"
free=$(df --output=avail -B1 /var/lib | tail -n 1)
fallocate -l "$free" /var/lib/lab-fill 2> /dev/null || fallocate -l $((free * 9 / 10)) /var/lib/lab-fill
dd if=/dev/zero of=/var/lib/lab-fill-2 bs=4k 2> /dev/null
[ "$(df --output=avail -B1 /var/lib | tail -n 1)" -lt 65536 ]
"#;

/// What can go wrong with a node, by the names that the command line takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Fault {
    /// It is switched off.
    Off,
    /// It hangs.
    Hang,
    /// Its network cable is pulled.
    Unplugged,
    /// It does not hear this machine, and with it the tool.
    NoTool,
    /// Its link carries 1 MB/s.
    Slow,
    /// Its disk is full.
    Full,
}

impl Node {
    /// Does that to it.
    pub fn suffer(&self, fault: Fault) -> Result<(), LabError> {
        match fault {
            Fault::Off => self.stop(),
            Fault::Hang => self.pause(),
            Fault::Unplugged => self.cut(),
            Fault::NoTool => self.cut_from_tool(),
            Fault::Slow => self.slow(),
            Fault::Full => self.fill_disk(),
        }
    }

    /// Ends every fault: it runs, its user can log in, it hears everyone at full speed, and has room on
    /// its disk.
    pub fn heal(&self) -> Result<(), LabError> {
        self.resume()?;
        self.start()?;
        self.link(&["link", "set", "up", "dev"])?;
        // One that was switched on a moment ago takes no command yet.
        let end = Instant::now() + TAKES_COMMANDS;
        while let Err(error) = self.hear_all().and_then(|()| self.hurry()) {
            if Instant::now() > end {
                return Err(error);
            }
            sleep(Duration::from_millis(200));
        }
        // Its disk is mounted while it boots.
        self.wait_ssh(BOOT)?;
        self.free_disk()
    }

    /// Switches it on. It is there as soon as [`Self::wait_ssh`] says so.
    pub fn start(&self) -> Result<(), LabError> {
        if self.state()? != NodeState::Stopped {
            return Ok(());
        }
        self.machine("start", &["start"])
    }

    /// Pulls its plug: nothing on it is told.
    pub fn stop(&self) -> Result<(), LabError> {
        // What hangs cannot be killed.
        self.resume()?;
        if self.state()? != NodeState::Running {
            return Ok(());
        }
        self.machine("switch off", &["kill"])
    }

    /// Makes it hang: it keeps its connections and answers nothing.
    pub fn pause(&self) -> Result<(), LabError> {
        if self.state()? == NodeState::Paused {
            return Ok(());
        }
        self.machine("pause", &["pause"])
    }

    /// Ends a [`Self::pause`].
    pub fn resume(&self) -> Result<(), LabError> {
        if self.state()? != NodeState::Paused {
            return Ok(());
        }
        self.machine("resume", &["unpause"])
    }

    /// Pulls its network cable, so that it sees no carrier. What it runs goes on, and [`Self::exec`]
    /// still works.
    pub fn cut(&self) -> Result<(), LabError> {
        self.link(&["link", "set", "down", "dev"])
    }

    /// Neither of the two hears the other from now on; all else goes on.
    pub fn cut_from(&self, other: &Self) -> Result<(), LabError> {
        self.ignore(other.address)?;
        other.ignore(self.address)
    }

    /// It does not hear this machine from now on, so no tool here reaches it; the nodes do.
    pub fn cut_from_tool(&self) -> Result<(), LabError> {
        let [a, b, c, _] = self.address.octets();
        self.ignore(Ipv4Addr::new(a, b, c, 1))
    }

    fn ignore(&self, from: Ipv4Addr) -> Result<(), LabError> {
        let table = "iptables --wait --table mangle";
        self.sh(&format!(
            "{table} --new-chain {CHAIN} 2> /dev/null
             {table} --check PREROUTING --jump {CHAIN} 2> /dev/null ||
                 {table} --insert PREROUTING --jump {CHAIN} &&
             {{ {table} --check {CHAIN} --source {from} --jump DROP 2> /dev/null ||
                 {table} --append {CHAIN} --source {from} --jump DROP; }}"
        ))
        .map(drop)
    }

    fn hear_all(&self) -> Result<(), LabError> {
        let table = "iptables --wait --table mangle";
        self.sh(&format!(
            "{table} --list {CHAIN} > /dev/null 2>&1 || exit 0
             {table} --delete PREROUTING --jump {CHAIN} 2> /dev/null
             {table} --flush {CHAIN} && {table} --delete-chain {CHAIN}"
        ))
        .map(drop)
    }

    /// Its link carries 1 MB/s from now on, in each direction.
    pub fn slow(&self) -> Result<(), LabError> {
        let here = self.exec(&format!("tc qdisc replace dev eth0 {SLOW}"))?;
        if !here.ok() {
            return Err(LabError::Refused(format!(
                "the link of {} cannot be slowed: the kernel needs CONFIG_NET_SCH_TBF: {}",
                self.name(),
                here.stderr.trim()
            )));
        }
        let words: Vec<&str> = SLOW.split(' ').collect();
        let cable = self.cable()?;
        Run::new(format!("cannot slow the link of {}", self.name()), "tc")
            .args(["qdisc", "replace", "dev", &cable])
            .args(words)
            .done()
    }

    /// Ends a [`Self::slow`]. That there is nothing to end is fine.
    fn hurry(&self) -> Result<(), LabError> {
        let slowed =
            "tc qdisc show dev eth0 | grep -q tbf || exit 0; tc qdisc delete dev eth0 root";
        self.sh(slowed)?;
        let cable = self.cable()?;
        let there = Run::new("cannot look at a link", "tc").args(["qdisc", "show", "dev", &cable]);
        if there.text()?.contains("tbf") {
            Run::new(format!("cannot free the link of {}", self.name()), "tc")
                .args(["qdisc", "delete", "dev", &cable, "root"])
                .done()?;
        }
        Ok(())
    }

    /// Does something to the machine's end of the node's cable.
    fn link(&self, words: &[&str]) -> Result<(), LabError> {
        Run::new(format!("cannot switch the cable of {}", self.name()), "ip")
            .args(words)
            .arg(self.cable()?)
            .done()
    }

    /// The machine's end of the node's cable.
    fn cable(&self) -> Result<String, LabError> {
        let index = self.sh("cat /sys/class/net/eth0/iflink")?;
        let all = Path::new("/sys/class/net");
        for entry in fs::read_dir(all).map_err(LabError::file("cannot list", all))? {
            let path = entry.map_err(LabError::file("cannot list", all))?.path();
            let Some(name) = path.file_name().and_then(|name| name.to_str()) else {
                continue;
            };
            if cache::read(&path.join("ifindex")).is_ok_and(|found| found.trim() == index) {
                return Ok(name.to_owned());
            }
        }
        Err(LabError::Refused(format!(
            "this machine has no end of the cable of {}",
            self.name()
        )))
    }

    /// Leaves no free block on its disk. Only a disk with a cap can be filled.
    pub fn fill_disk(&self) -> Result<(), LabError> {
        if self.sh("cat /run/lab/disk")? != "capped" {
            return Err(LabError::Refused(format!(
                "the disk of {} has no cap, for this machine gives its nodes no loop devices",
                self.name()
            )));
        }
        self.sh(FILL).map(drop)
    }

    /// Ends a [`Self::fill_disk`].
    pub fn free_disk(&self) -> Result<(), LabError> {
        self.sh("rm -f /var/lib/lab-fill /var/lib/lab-fill-2")
            .map(drop)
    }
}

impl Lab {
    /// Ends every fault of every node.
    pub fn heal(&self) -> Result<(), LabError> {
        // They boot side by side.
        for node in self.nodes() {
            node.resume()?;
            node.start()?;
        }
        self.nodes().iter().try_for_each(Node::heal)
    }
}
