//! A line to the nodes that is as long as one wants: sshd of each node behind a port of this machine, and
//! every byte as much later. What a run takes longer on it is its round trips one after the other, those
//! that hide behind programs that start left out.

use std::{
    collections::BTreeMap,
    fmt,
    io::{self, Read as _, Write as _},
    net::{IpAddr, Ipv4Addr, Shutdown, TcpListener, TcpStream},
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

/// How long lines are: none, one to another country, and one to another continent.
pub(crate) const ROUND_TRIPS: [Duration; 3] = [
    Duration::ZERO,
    Duration::from_millis(50),
    Duration::from_millis(300),
];

/// Lines to some nodes, by name the port of each.
pub(crate) struct Line(pub(crate) BTreeMap<String, u16>);

impl Line {
    /// Until the process ends.
    pub(crate) fn to<'n>(
        nodes: impl Iterator<Item = (&'n str, IpAddr)>,
        round_trip: Duration,
    ) -> io::Result<Self> {
        let mut ports = BTreeMap::new();
        for (name, address) in nodes {
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
            ports.insert(name.to_owned(), listener.local_addr()?.port());
            thread::spawn(move || {
                for near in listener.incoming().flatten() {
                    thread::spawn(move || carry(near, address, round_trip));
                }
            });
        }
        Ok(Self(ports))
    }
}

fn carry(near: TcpStream, to: IpAddr, round_trip: Duration) -> io::Result<()> {
    // The connection is made at once here, and takes a trip there.
    thread::sleep(round_trip);
    let far = TcpStream::connect((to, 22))?;
    near.set_nodelay(true)?;
    far.set_nodelay(true)?;
    let (back_from, back_to) = (far.try_clone()?, near.try_clone()?);
    thread::spawn(move || late(back_from, back_to, round_trip / 2));
    late(near, far, round_trip / 2)
}

/// Everything arrives, in order, that much later.
fn late(mut from: TcpStream, mut to: TcpStream, way: Duration) -> io::Result<()> {
    let (sent, under_way) = mpsc::channel::<(Instant, Vec<u8>)>();
    let arrives = thread::spawn(move || -> io::Result<()> {
        for (when, bytes) in under_way {
            thread::sleep(when.saturating_duration_since(Instant::now()));
            to.write_all(&bytes)?;
        }
        to.shutdown(Shutdown::Write)
    });
    let mut bytes = vec![0; 64 << 10];
    loop {
        let count = from.read(&mut bytes)?;
        if count == 0
            || sent
                .send((Instant::now() + way, bytes[..count].to_vec()))
                .is_err()
        {
            break;
        }
    }
    drop(sent);
    arrives
        .join()
        .map_err(|_| io::Error::other("a thread failed"))?
}

/// What one run after the other took on a line of that length.
pub(crate) struct OnLine {
    pub(crate) round_trip: Duration,
    /// A fresh `up`, one with nothing to do, and `remove`.
    pub(crate) took: [Duration; 3],
}

/// The rows of the table: seconds, and round trips beside no delay.
pub(crate) struct Rows<'r>(pub(crate) &'r [OnLine]);

impl fmt::Display for Rows<'_> {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            to,
            "| round trip at sshd | fresh `up` | nothing to do | `remove` |"
        )?;
        writeln!(to, "|---|---|---|---|")?;
        let near = self.0.iter().find(|run| run.round_trip.is_zero());
        for OnLine { round_trip, took } in self.0 {
            write!(to, "| {} ms |", round_trip.as_millis())?;
            for (number, time) in took.iter().enumerate() {
                write!(to, " {:.1} s", time.as_secs_f64())?;
                if let Some(near) = near
                    && !round_trip.is_zero()
                {
                    let more = time.as_secs_f64() - near.took[number].as_secs_f64();
                    write!(to, " = {:.0} trips", more / round_trip.as_secs_f64())?;
                }
                write!(to, " |")?;
            }
            writeln!(to)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trips_are_what_a_run_takes_longer() {
        let run = |round_trip, fresh, idle, removed| OnLine {
            round_trip: Duration::from_millis(round_trip),
            took: [fresh, idle, removed].map(Duration::from_millis),
        };
        let rows = Rows(&[run(0, 10_000, 500, 8_000), run(300, 25_000, 4_100, 20_000)]).to_string();
        assert!(rows.contains("| 0 ms | 10.0 s | 0.5 s | 8.0 s |"), "{rows}");
        let far = "| 300 ms | 25.0 s = 50 trips | 4.1 s = 12 trips | 20.0 s = 40 trips |";
        assert!(rows.contains(far), "{rows}");
    }
}
