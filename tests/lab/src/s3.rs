//! A server of S3's API on this machine: a process whose objects are files in a folder. It ends with its value.

use std::{
    fs::File,
    io::Write,
    net::{SocketAddr, TcpStream},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use crate::{
    Lab, LabError, Store,
    cache::{self, make_dir},
    certificates,
    image::{self, program_of},
};

/// How long it may take until it answers.
const STARTS: Duration = Duration::from_secs(30);

/// Its port on the network of a lab.
const PORT: u16 = 7070;

/// The server.
#[derive(Debug)]
pub struct S3 {
    program: PathBuf,
    process: Option<Child>,
    address: SocketAddr,
    dir: PathBuf,
}

impl S3 {
    /// The name of its account.
    pub const ACCESS_KEY: &'static str = "lab";
    /// Its secret.
    pub const SECRET_KEY: &'static str = "not-a-secret-of-the-lab";

    /// Starts one that the nodes of a lab reach: on this machine, where their network ends.
    pub fn for_lab(lab: &Lab, dir: &Path, log: &mut dyn Write) -> Result<Self, LabError> {
        let Some(node) = lab.nodes().first() else {
            return Err(LabError::Refused("a lab has a node".to_owned()));
        };
        let [a, b, c, _] = node.address().octets();
        Self::start(SocketAddr::from(([a, b, c, 1], PORT)), dir, log)
    }

    /// Starts one that keeps its files in this folder. Its program is built if the cache has none.
    pub fn start(address: SocketAddr, dir: &Path, log: &mut dyn Write) -> Result<Self, LabError> {
        let image = Store::from_environment()
            .that_builds()
            .image(image::S3, log)?;
        let mut server = Self {
            program: program_of(&image, "versitygw")?,
            process: None,
            address,
            dir: dir.to_owned(),
        };
        make_dir(&server.data())?;
        certificates::make(dir, "s3.lab", &format!("IP:{}", address.ip()))?;
        server.resume()?;
        Ok(server)
    }

    /// Its URL.
    pub fn endpoint(&self) -> String {
        format!("https://{}", self.address)
    }

    /// The certificate of the authority that signed its own.
    pub fn ca(&self) -> Result<String, LabError> {
        cache::read(&self.dir.join("ca.crt"))
    }

    /// The `s3backupconfig` of a `cluster.yml` for a bucket.
    pub fn config(&self, bucket: &str) -> Result<String, LabError> {
        Ok(format!(
            "endpoint: {}\nbucket_name: {bucket}\naccess_key: {}\nsecret_key: {}\ncustom_ca: |\n  {}",
            self.endpoint(),
            Self::ACCESS_KEY,
            Self::SECRET_KEY,
            self.ca()?.trim_end().replace('\n', "\n  "),
        ))
    }

    /// The folder whose files are the objects of a bucket, which is made.
    pub fn bucket(&self, name: &str) -> Result<PathBuf, LabError> {
        let dir = self.data().join(name);
        make_dir(&dir)?;
        Ok(dir)
    }

    /// Ends the process: connections are refused until [`Self::resume`].
    pub fn stop(&mut self) {
        if let Some(mut process) = self.process.take() {
            let _ = process.kill();
            let _ = process.wait();
        }
    }

    /// Starts it again, at the same address.
    pub fn resume(&mut self) -> Result<(), LabError> {
        let path = self.dir.join("log");
        let log = File::create(&path).map_err(LabError::file("cannot write", &path))?;
        let copy = log.try_clone();
        let copy = copy.map_err(LabError::file("cannot write", &path))?;
        let process = Command::new(&self.program)
            .env("ROOT_ACCESS_KEY", Self::ACCESS_KEY)
            .env("ROOT_SECRET_KEY", Self::SECRET_KEY)
            .arg(format!("--port={}", self.address))
            .arg(format!("--cert={}", self.dir.join("tls.crt").display()))
            .arg(format!("--key={}", self.dir.join("tls.key").display()))
            .arg("posix")
            .arg(self.data())
            .stdin(Stdio::null())
            .stdout(copy)
            .stderr(log)
            .spawn();
        self.process = Some(process.map_err(LabError::file("cannot start", &self.program))?);
        let begun = Instant::now();
        while TcpStream::connect_timeout(&self.address, Duration::from_secs(1)).is_err() {
            if begun.elapsed() > STARTS {
                return Err(LabError::Host(format!(
                    "the server of S3 does not answer at {}: see {}",
                    self.address,
                    path.display()
                )));
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(())
    }

    fn data(&self) -> PathBuf {
        self.dir.join("data")
    }
}

impl Drop for S3 {
    fn drop(&mut self) {
        self.stop();
    }
}
