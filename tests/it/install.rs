//! `deploy/install.sh`, with the files of a release as `make dist` names them and a program that only prints its version:
//! from a folder and over HTTP, and what it refuses.

use std::{
    ffi::OsStr,
    fmt::Write as _,
    fs,
    io::{BufRead as _, BufReader, Write as _},
    net::TcpListener,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::{Command, Output},
};

use sha2::{Digest as _, Sha256};
use tempfile::TempDir;

/// A release in a folder, and a folder to install to.
struct Release {
    folder: TempDir,
    home: TempDir,
}

impl Release {
    /// With programs for both architectures.
    fn new(versions: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut sums = String::new();
        for version in versions {
            for architecture in ["amd64", "arm64"] {
                let name = format!("rke-operator-{version}-linux-{architecture}");
                let program = format!("#!/bin/sh\necho rke-operator {version} {architecture}\n");
                let archive = format!("{name}.tar.gz");
                for (name, content) in [(name, program.as_str()), (archive, "an archive")] {
                    fs::write(folder.path().join(&name), content).unwrap();
                    let _ = writeln!(sums, "{:x}  {name}", Sha256::digest(content));
                }
            }
        }
        fs::write(folder.path().join("SHA256SUMS"), sums).unwrap();
        let home = tempfile::tempdir().unwrap();
        Self { folder, home }
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn to(&self) -> PathBuf {
        self.home.path().join("bin")
    }

    /// Runs the script with what there is in `PATH` besides.
    fn install(&self, source: &OsStr, args: &[&str], programs: &[(&str, &str)]) -> Output {
        let before = tempfile::tempdir().unwrap();
        let machine = (
            "uname",
            "case $1 in -s) echo Linux ;; *) echo x86_64 ;; esac",
        );
        for (name, script) in [machine].iter().chain(programs) {
            let path = before.path().join(name);
            fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        }
        let path = std::env::var("PATH").unwrap();
        Command::new("sh")
            .arg(script())
            .arg("--from")
            .arg(source)
            .arg("--to")
            .arg(self.to())
            .args(args)
            .env("PATH", format!("{}:{path}", before.path().display()))
            .env_remove("RKE_OPERATOR_RELEASES")
            .env("no_proxy", "127.0.0.1")
            .output()
            .unwrap()
    }

    /// What is in the folder to install to.
    fn installed(&self) -> Vec<String> {
        let Ok(entries) = fs::read_dir(self.to()) else {
            return Vec::new();
        };
        entries
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect()
    }

    /// That it was refused for a reason, with a cure, and that nothing was left behind.
    fn is_refused(&self, output: &Output, why: &str, cure: &str) {
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.contains(&format!("error: {why}")), "{why}: {said}");
        let hint = said.split("hint: ").nth(1).unwrap_or_default();
        assert!(hint.contains(cure), "{cure}: {said}");
        assert_eq!(self.installed(), Vec::<String>::new(), "{said}");
    }
}

fn script() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy/install.sh")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Serves the files of a folder over HTTP until the test ends; its address.
fn serve(folder: &Path) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let folder = folder.to_owned();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
            let request = lines.next().unwrap().unwrap();
            while lines.next().is_some_and(|line| !line.unwrap().is_empty()) {}
            let name = request.split(' ').nth(1).unwrap().trim_start_matches('/');
            let (status, body) = fs::read(folder.join(name))
                .map_or(("404 Not Found", Vec::new()), |body| ("200 OK", body));
            let head = format!(
                "HTTP/1.1 {status}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
                body.len()
            );
            let _ = stream.write_all(head.as_bytes());
            let _ = stream.write_all(&body);
        }
    });
    address
}

#[test]
fn the_program_for_this_machine_is_installed_and_the_next_command_named() {
    let release = Release::new(&["0.1.0"]);
    let output = release.install(release.folder.path().as_os_str(), &[], &[]);
    let said = text(&output.stdout);
    assert!(output.status.success(), "{output:?}");
    assert!(
        said.starts_with("rke-operator 0.1.0 amd64 is installed: "),
        "{said}"
    );
    assert!(said.contains("is not on your PATH"), "{said}");
    assert!(said.contains("next: rke-operator config"), "{said}");
    assert_eq!(release.installed(), ["rke-operator"]);
    let mode = fs::metadata(release.to().join("rke-operator"))
        .unwrap()
        .permissions();
    assert_eq!(mode.mode() & 0o777, 0o755);

    let arm = [(
        "uname",
        "case $1 in -s) echo Linux ;; *) echo aarch64 ;; esac",
    )];
    let output = release.install(release.folder.path().as_os_str(), &[], &arm);
    assert!(
        text(&output.stdout).starts_with("rke-operator 0.1.0 arm64"),
        "{output:?}"
    );
}

#[test]
fn a_release_is_installed_over_http_by_its_version() {
    let release = Release::new(&["0.1.0", "0.2.0"]);
    let address = serve(release.folder.path());
    let address = OsStr::new(&address);
    for version in ["0.1.0", "v0.2.0"] {
        let output = release.install(address, &["--version", version], &[]);
        let wanted = format!("rke-operator {} amd64", version.trim_start_matches('v'));
        assert!(text(&output.stdout).starts_with(&wanted), "{output:?}");
    }
    let program = release.to().join("rke-operator");
    let before = fs::read(&program).unwrap();
    let output = release.install(address, &["--version", "0.3.0"], &[]);
    assert!(
        text(&output.stderr).contains("has no rke-operator-0.3.0-linux-amd64"),
        "{output:?}"
    );
    assert_eq!(fs::read(&program).unwrap(), before);
}

#[test]
fn a_damaged_program_is_refused_and_the_installed_one_stays() {
    let release = Release::new(&["0.1.0"]);
    let address = serve(release.folder.path());
    fs::write(
        release.file("rke-operator-0.1.0-linux-amd64"),
        "#!/bin/sh\n",
    )
    .unwrap();
    for source in [release.folder.path().as_os_str(), OsStr::new(&address)] {
        let output = release.install(source, &[], &[]);
        let why = "rke-operator-0.1.0-linux-amd64 from ";
        release.is_refused(&output, why, "is not installed");
        assert!(
            text(&output.stderr).contains("another checksum"),
            "{output:?}"
        );
    }
    let program = release.to().join("rke-operator");
    fs::create_dir_all(release.to()).unwrap();
    fs::write(&program, "the former one").unwrap();
    let output = release.install(OsStr::new(&address), &[], &[]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert_eq!(fs::read_to_string(&program).unwrap(), "the former one");
    assert_eq!(release.installed(), ["rke-operator"]);
}

#[test]
fn each_refusal_names_its_cause_and_its_cure() {
    let release = Release::new(&["0.1.0"]);
    let folder = release.folder.path().as_os_str();
    let cases = [
        (
            "case $1 in -s) echo Darwin ;; *) echo arm64 ;; esac",
            "releases have no program for Darwin",
        ),
        (
            "case $1 in -s) echo Linux ;; *) echo riscv64 ;; esac",
            "releases have no program for riscv64",
        ),
    ];
    for (machine, why) in cases {
        let output = release.install(folder, &[], &[("uname", machine)]);
        release.is_refused(&output, why, "cargo install --locked --path .");
    }
    let output = release.install(OsStr::new("/nowhere"), &[], &[]);
    release.is_refused(
        &output,
        "cannot get SHA256SUMS from /nowhere",
        "--from SOURCE",
    );
    let address = format!("{}/nothing", serve(release.folder.path()));
    let output = release.install(OsStr::new(&address), &[], &[]);
    let why = format!("cannot get SHA256SUMS from {address}");
    release.is_refused(&output, &why, "--from SOURCE");
    let output = release.install(folder, &["--colour"], &[]);
    release.is_refused(&output, "there is no option --colour", "--help");
    let output = release.install(folder, &["--version"], &[]);
    release.is_refused(&output, "--version needs a value", "--help");
    let several = Release::new(&["0.1.0", "0.2.0"]);
    let output = several.install(several.folder.path().as_os_str(), &[], &[]);
    several.is_refused(
        &output,
        &format!("{} has several releases", several.folder.path().display()),
        "--version",
    );
    // A file where the folder should be.
    fs::remove_dir(release.to()).unwrap();
    fs::write(release.to(), "").unwrap();
    let output = release.install(folder, &[], &[]);
    let why = format!("cannot write to {}", release.to().display());
    release.is_refused(&output, &why, "--to");
}

/// A folder to install to that does not exist is created.
#[test]
fn a_variable_names_the_source_as_well() {
    let release = Release::new(&["0.1.0"]);
    let to = release.home.path().join("a/b");
    let output = Command::new("sh")
        .arg(script())
        .arg("--to")
        .arg(&to)
        .env(
            "PATH",
            format!("{}:{}", to.display(), std::env::var("PATH").unwrap()),
        )
        .env(
            "RKE_OPERATOR_RELEASES",
            format!("file://{}/", release.folder.path().display()),
        )
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    assert!(to.join("rke-operator").is_file());
    assert!(!text(&output.stdout).contains("PATH"), "{output:?}");
}

/// A machine with these programs alone.
#[test]
fn without_curl_and_wget_a_folder_is_proposed() {
    let release = Release::new(&["0.1.0"]);
    let few = tempfile::tempdir().unwrap();
    let path = std::env::var_os("PATH").unwrap();
    for name in ["mkdir", "mktemp", "rm", "uname", "sed"] {
        let found = std::env::split_paths(&path).map(|folder| folder.join(name));
        let found = found.into_iter().find(|path| path.is_file()).unwrap();
        std::os::unix::fs::symlink(found, few.path().join(name)).unwrap();
    }
    let shell = ["/bin/sh", "/usr/bin/sh"]
        .into_iter()
        .find(|path| Path::new(path).exists());
    let output = Command::new(shell.unwrap())
        .arg(script())
        .args(["--from", "https://mirror.example.com"])
        .arg("--to")
        .arg(release.to())
        .env("PATH", few.path())
        .output()
        .unwrap();
    release.is_refused(
        &output,
        "neither curl nor wget is installed",
        "--from FOLDER",
    );
}

/// One that was cut off on its way does nothing: its last line calls everything.
#[test]
fn the_script_calls_the_repository_and_runs_only_whole() {
    let script = fs::read_to_string(script()).unwrap();
    let releases = concat!("github=", env!("CARGO_PKG_REPOSITORY"), "/releases\n");
    assert!(script.contains(releases), "{releases}");
    assert!(script.ends_with("\nmain \"$@\"\n"));
}
