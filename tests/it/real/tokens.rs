//! A server that says whose a token is: API servers of the lab ask it. It listens where the lab's nodes reach this
//! machine, and nowhere else.

use std::{
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    thread,
    time::Duration,
};

use lab::Node;
use serde_json::{Value, json};

/// The only token that it knows.
pub(crate) const TOKEN: &str = "a-token-of-the-webhook";
/// Whose it is.
pub(crate) const USER: &str = "somebody@example.com";

/// Ends with the test's process.
pub(crate) struct Tokens {
    address: SocketAddr,
    asked: Arc<AtomicU32>,
}

impl Tokens {
    /// Beside this node.
    pub(crate) fn beside(node: &Node) -> Self {
        let [a, b, c, _] = node.address().octets();
        let here = Ipv4Addr::new(a, b, c, 1);
        let listener = TcpListener::bind((here, 0)).expect("an address of the lab's network");
        let address = listener.local_addr().expect("a port");
        let asked = Arc::new(AtomicU32::new(0));
        let count = Arc::clone(&asked);
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let count = Arc::clone(&count);
                thread::spawn(move || {
                    // An API server that went away needs no answer.
                    let _ = serve(&stream, &count);
                });
            }
        });
        Self { address, asked }
    }

    /// What `config_file` says of it.
    pub(crate) fn kubeconfig(&self) -> String {
        let server = format!("http://{}/authenticate", self.address);
        json!({
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "tokens", "cluster": {"server": server}}],
            "users": [{"name": "api-server", "user": {}}],
            "contexts": [{"name": "tokens", "context": {"cluster": "tokens", "user": "api-server"}}],
            "current-context": "tokens",
        })
        .to_string()
    }

    /// How often it was asked.
    pub(crate) fn asked(&self) -> u32 {
        self.asked.load(Ordering::Relaxed)
    }
}

/// Answers what comes over one connection, one after the other.
fn serve(stream: &TcpStream, count: &AtomicU32) -> std::io::Result<()> {
    stream.set_read_timeout(Some(Duration::from_secs(600)))?;
    let mut reader = BufReader::new(stream);
    loop {
        let mut length = 0;
        loop {
            let mut line = String::new();
            if reader.read_line(&mut line)? == 0 {
                return Ok(());
            }
            let line = line.trim().to_ascii_lowercase();
            if let Some(value) = line.strip_prefix("content-length:") {
                length = value.trim().parse().unwrap_or(0);
            }
            if line.is_empty() {
                break;
            }
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body)?;
        let review: Value = serde_json::from_slice(&body)?;
        count.fetch_add(1, Ordering::Relaxed);
        let status = if review["spec"]["token"] == TOKEN {
            json!({"authenticated": true, "user": {"username": USER, "groups": ["readers"]}})
        } else {
            json!({"authenticated": false})
        };
        let answer = json!({
            "apiVersion": review["apiVersion"],
            "kind": "TokenReview",
            "status": status,
        });
        let answer = answer.to_string();
        let mut stream = stream;
        write!(
            stream,
            "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{answer}",
            answer.len()
        )?;
    }
}
