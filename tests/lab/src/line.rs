//! A line to nodes that is as long as one wants: sshd of each behind a port of this machine, and every byte that much
//! later.

use std::{
    collections::BTreeMap,
    io::{Read as _, Write as _},
    net::{IpAddr, Ipv4Addr, Shutdown, TcpListener, TcpStream},
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

/// Lines to some nodes, by name the port of each on `127.0.0.1`.
#[derive(Debug)]
pub struct Line(pub BTreeMap<String, u16>);

impl Line {
    /// Until the process ends.
    pub fn to<'n>(
        nodes: impl Iterator<Item = (&'n str, IpAddr)>,
        round_trip: Duration,
    ) -> std::io::Result<Self> {
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

fn carry(near: TcpStream, to: IpAddr, round_trip: Duration) -> std::io::Result<()> {
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
fn late(mut from: TcpStream, mut to: TcpStream, way: Duration) -> std::io::Result<()> {
    let (sent, under_way) = mpsc::channel::<(Instant, Vec<u8>)>();
    let arrives = thread::spawn(move || -> std::io::Result<()> {
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
        .map_err(|_| std::io::Error::other("a thread failed"))?
}
