//! The scripts behind `make demo` and `make test`, with programs that only pretend: what they say
//! and how they end where something is missing.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::Path,
    process::{Command, Output},
};

use tempfile::TempDir;

/// A folder of programs that stand before the real ones.
struct Programs(TempDir);

impl Programs {
    fn new(programs: &[(&str, &str)]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        for (name, script) in programs {
            let path = folder.path().join(name);
            fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        }
        Self(folder)
    }

    fn run(&self, script: &str, environment: &[(&str, &str)]) -> Output {
        self.run_with(script, &[], environment)
    }

    fn run_with(&self, script: &str, args: &[&str], environment: &[(&str, &str)]) -> Output {
        let path = std::env::var("PATH").unwrap();
        Command::new("bash")
            .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join(script))
            .args(args)
            .env("PATH", format!("{}:{path}", self.0.path().display()))
            .env("CARGO_TARGET_DIR", self.0.path())
            .env_remove("REQUIRE_LAB")
            .env_remove("ONLY")
            .envs(environment.iter().copied())
            .output()
            .unwrap()
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn a_demo_that_fails_early_names_its_step_and_no_file_that_is_not_there() {
    let programs = Programs::new(&[("cargo", "echo 'no compiler' >&2; exit 101")]);
    let output = programs.run("tests/demo.sh", &[("YES", "1")]);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(101), "{said}");
    assert!(
        said.contains("failed with exit code 101 at this step: building the lab"),
        "{said}"
    );
    assert!(!said.contains("operator.log"), "{said}");
    assert!(!said.contains("lab-down"), "no lab stands: {said}");
}

/// Everything passes, and the machine cannot have a lab, for the caller is not root.
const WITHOUT_LAB: &[(&str, &str)] = &[
    ("id", "echo 1000"),
    (
        "cargo",
        r#"case "$1 $2" in
        'nextest run') echo '     Summary [   0.100s] 3 tests run: 3 passed, 2 skipped' ;;
        'nextest list') echo one; echo two ;;
        'test --workspace') echo 'test result: ok. 1 passed; 0 failed; 0 ignored' ;;
        esac"#,
    ),
];

#[test]
fn tests_of_the_lab_that_cannot_run_are_counted() {
    let output = Programs::new(WITHOUT_LAB).run("tests/all.sh", &[]);
    let said = text(&output.stdout);
    assert!(output.status.success(), "{said}");
    assert!(said.contains("2 tests skipped: it needs root"), "{said}");
    let last = said.lines().last().unwrap();
    assert!(last.ends_with("4 tests run: 4 passed, 2 skipped"), "{said}");
}

#[test]
fn where_the_lab_is_required_a_run_without_its_tests_fails() {
    let output = Programs::new(WITHOUT_LAB).run("tests/all.sh", &[("REQUIRE_LAB", "1")]);
    let said = text(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{said}");
    let last = said.lines().last().unwrap();
    assert!(
        last.starts_with("failed: lab: 2 tests did not run"),
        "{said}"
    );
}

/// Tests run a node's programs (iptables): a machine that lacks them gets them before.
#[test]
fn programs_are_installed_before_the_tests_that_run_them() {
    let programs = Programs::new(&[
        ("id", "echo 0"),
        ("apt-get", "exit 0"),
        ("go", "exit 0"),
        (
            "cargo",
            r#"lab="$CARGO_TARGET_DIR/debug/lab"
            case "$1 $2" in
            'build --quiet')
                mkdir -p "${lab%/*}"
                printf '#!/bin/sh\necho "lab $*"\n' > "$lab"
                chmod +x "$lab" ;;
            'nextest run')
                echo 'a test runs'
                echo '     Summary [   0.100s] 3 tests run: 3 passed, 0 skipped' ;;
            esac"#,
        ),
    ]);
    let output = programs.run("tests/all.sh", &[]);
    let said = text(&output.stdout);
    assert!(output.status.success(), "{said}");
    let of = |what| {
        said.find(what)
            .unwrap_or_else(|| panic!("no {what}: {said}"))
    };
    assert!(of("lab missing --install") < of("a test runs"), "{said}");
}

/// The soak's own program tells what it was asked for.
const SOAK: &[(&str, &str)] = &[
    ("git", "echo abc"),
    (
        "cargo",
        r#"case $1 in
        nextest) echo "commit $SOAK_HA_COMMIT: ${PAIRS:-all} of '$ONLY' in $SOAK_HA_ROWS" >"$SOAK_HA_TABLE"; exit 7 ;;
        *) echo "$1" ;;
        esac"#,
    ),
];

#[test]
fn a_soak_goes_on_where_it_is_told_and_ends_with_its_table_even_if_it_fails() {
    let programs = Programs::new(SOAK);
    let lab = programs.0.path().join("debug/lab");
    fs::create_dir_all(lab.parent().unwrap()).unwrap();
    fs::write(&lab, "#!/bin/sh\necho lab $1 >&2\n").unwrap();
    fs::set_permissions(&lab, fs::Permissions::from_mode(0o755)).unwrap();
    let run = |environment: &[(&str, &str)]| {
        let output = programs.run("tests/soak-ha.sh", environment);
        assert_eq!(output.status.code(), Some(7), "{output:?}");
        (text(&output.stdout), text(&output.stderr))
    };
    let rows = programs.0.path().join("soak-ha.jsonl");
    let (table, said) = run(&[("PAIRS", ""), ("ONLY", "flags/hang")]);
    let wanted = format!("commit abc: all of 'flags/hang' in {}", rows.display());
    assert!(table.contains(&wanted), "{table}");
    assert!(said.contains("lab missing") && said.contains("lab images"));

    let (table, said) = run(&[("TABLE", "1"), ("ROWS", "/tmp/../rows")]);
    assert!(table.contains("commit abc: 0 of '' in /rows"), "{table}");
    assert!(!said.contains("lab"), "no lab is needed: {said}");
}

/// Stand-ins for the programs that the script calls; a test fails in each run.
const CONFORMANCE: &[(&str, &str)] = &[
    ("git", "echo abc"),
    ("id", "echo 0"),
    (
        "cargo",
        r#"cd "$CARGO_TARGET_DIR" && mkdir -p debug && cd debug
echo 'echo "rke $*"' > rke-operator
cat > lab << 'IN'
echo "lab $*" >&2
case "$1 $2" in
'e2e programs') dirname "$0" ;;
'e2e passed') echo 'one$' ;;
'e2e table') echo '| table |' && exit 1 ;;
'ssh --name') exit 1 ;;
'status ') printf 'lab conformance:\n  known hosts /dev/null\n' ;;
esac
IN
cat > ginkgo << 'IN'
echo "$*" >> "$(dirname "$0")/asked"
for word; do
    case $word in --report-dir=*) mkdir -p "${word#*=}/ginkgo" && echo '[]' > "${word#*=}/ginkgo/report.json" ;; esac
done
exit 1
IN
for program in *; do sed -i '1i #!/bin/sh' "$program" && chmod +x "$program"; done"#,
    ),
];

#[test]
fn conformance_tests_that_failed_run_once_more_alone_and_the_lab_goes() {
    let programs = Programs::new(CONFORMANCE);
    let run = |environment: &[(&str, &str)]| {
        let asked = programs.0.path().join("debug/asked");
        let _ = fs::remove_file(&asked);
        let output = programs.run("tests/conformance.sh", environment);
        let (table, said) = (text(&output.stdout), text(&output.stderr));
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(table.contains("commit abc\n\n| table |"), "{table}");
        assert!(said.ends_with("lab down --name conformance\n"), "{said}");
        (fs::read_to_string(asked).unwrap(), said)
    };
    let (asked, said) = run(&[("PROCS", "3")]);
    let asked: Vec<&str> = asked.lines().collect();
    assert!(asked[0].contains("--procs=3") && asked[0].contains("--skip=one$"));
    assert!(asked[1].contains("--procs=1") && asked.len() == 2);
    assert!(said.contains("lab up --name conformance --nodes 5 --e2e"));
    assert!(!said.contains("--part"), "{said}");

    // A part is no whole; where there is no time there is no second try.
    let (asked, said) = run(&[("FOCUS", "some"), ("MINUTES", "5")]);
    assert!(asked.contains("--timeout=5m") && asked.contains("--focus=some"));
    assert_eq!(asked.lines().count(), 1);
    assert!(said.contains("--part"), "{said}");
}

/// What a change must pass has the lab's tests in it, unless somebody says otherwise beforehand.
#[test]
fn ci_requires_the_lab() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(".ci/run");
    let script = fs::read_to_string(path).unwrap();
    assert!(script.contains(r#"export REQUIRE_LAB="${REQUIRE_LAB:-1}""#));
}

/// Three mutants, of which one is killed and one takes too long; the third survives.
const MUTANTS: &[(&str, &str)] = &[
    ("cargo-mutants", "exit 0"),
    ("cargo-nextest", "exit 0"),
    (
        "cargo",
        r#"case "$*" in
        'mutants --list')
            echo 'src/plan/a.rs:1:2: replace x with y'
            echo 'src/plan/a.rs:3:4: replace < with <= in f'
            echo 'src/plan/b.rs:5:6: replace f -> bool with true' ;;
        *)
            while [ "$1" != --output ]; do shift; done
            mkdir -p "$2/mutants.out" && cd "$2/mutants.out"
            echo 'src/plan/a.rs:1:2: replace x with y' > caught.txt
            echo 'src/plan/a.rs:3:4: replace < with <= in f' > timeout.txt
            echo 'src/plan/b.rs:5:6: replace f -> bool with true' > missed.txt
            exit 2 ;;
        esac"#,
    ),
];

#[test]
fn a_mutant_that_survives_needs_a_reason() {
    let folder = tempfile::tempdir().unwrap();
    let judged = folder.path().join("judged.txt");
    let run = |list: &str| {
        fs::write(&judged, list).unwrap();
        let judged = judged.to_str().unwrap();
        let environment = [("MUTANTS_JUDGED", judged), ("MUTANTS", "all")];
        Programs::new(MUTANTS).run("tests/mutants.sh", &environment)
    };
    let without = run("# none\n");
    let said = text(&without.stdout);
    assert_eq!(without.status.code(), Some(1), "{said}");
    assert!(
        said.contains("survived:\nsrc/plan/b.rs: replace f"),
        "{said}"
    );
    assert!(
        said.contains("2 killed, 1 survived, 0 of them with a reason"),
        "{said}"
    );

    let with = run("src/plan/b.rs: replace f -> bool with true => it is always true\n");
    let said = text(&with.stdout);
    assert!(with.status.success(), "{said}");
    assert!(
        said.contains("1 of them with a reason, 0 did not compile: 100 %"),
        "{said}"
    );

    let stale = run("src/plan/c.rs: replace g with () => it did nothing\n");
    assert_eq!(stale.status.code(), Some(1));
    assert!(text(&stale.stderr).contains("no such mutant any more"));
}

/// A kubectl that tells what it is asked to do; `CLUSTERS` are there.
const KUBECTL: &[(&str, &str)] = &[(
    "kubectl",
    r#"case "$*" in
    'get crd '*) echo crd ;;
    'get clusters.'*) printf '%s' "$CLUSTERS" ;;
    'get kubeconfigs.'*) printf '%s' "${KUBECONFIGS:-}" ;;
    'apply --server-side -k '*/deploy.*) echo "kubectl $1"; cat "$4/kustomization.yaml" ;;
    *) echo "kubectl $*" ;;
    esac"#,
)];

#[test]
fn definitions_stay_while_there_are_clusters() {
    let kubectl = Programs::new(KUBECTL);
    let there = [("CLUSTERS", "clusters.clusterprovisioner.rke.io/a\n")];
    let output = kubectl.run_with("deploy/cluster.sh", &["uninstall"], &there);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("clusters.clusterprovisioner.rke.io/a"));
    assert!(!text(&output.stdout).contains("delete"), "{output:?}");
    let output = kubectl.run_with("deploy/cluster.sh", &["uninstall"], &[("CLUSTERS", "")]);
    assert!(output.status.success());
    assert!(text(&output.stdout).contains("kubectl delete --ignore-not-found -k crds"));
    let bound = [("CLUSTERS", ""), ("KUBECONFIGS", "jane\n")];
    let output = kubectl.run_with("deploy/cluster.sh", &["uninstall"], &bound);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("jane"), "{output:?}");
    assert!(!text(&output.stdout).contains("delete"), "{output:?}");
    // Whoever cannot tell deletes nothing.
    let blind = Programs::new(&[(
        "kubectl",
        "case \"$1\" in get) exit 1 ;; *) echo \"$*\" ;; esac",
    )]);
    let output = blind.run_with("deploy/cluster.sh", &["uninstall"], &[]);
    assert!(
        !output.status.success() && output.stdout.is_empty(),
        "{output:?}"
    );
}

#[test]
fn taking_the_operator_away_leaves_what_is_kept() {
    let kubectl = Programs::new(KUBECTL);
    let there = [("CLUSTERS", "a\nb\n")];
    let output = kubectl.run_with("deploy/cluster.sh", &["undeploy"], &there);
    let said = text(&output.stdout);
    assert!(output.status.success(), "{said}");
    let deleted: Vec<&str> = said
        .lines()
        .filter(|line| line.contains("kubectl delete"))
        .collect();
    assert_eq!(deleted.len(), 2, "{said}");
    assert!(deleted[0].ends_with("deploy/deployment.yaml"), "{said}");
    assert!(deleted[1].ends_with("deploy/rbac.yaml"), "{said}");
    assert!(said.contains("2 Clusters"), "{said}");
}

#[test]
fn an_image_is_named_as_kustomize_wants_it() {
    let kubectl = Programs::new(KUBECTL);
    for (image, wanted) in [
        (
            "rke-operator",
            "newName: \"rke-operator\"\n    newTag: latest",
        ),
        (
            "a.example:5000/x",
            "newName: \"a.example:5000/x\"\n    newTag: latest",
        ),
        (
            "a.example:5000/x:v1",
            "newName: \"a.example:5000/x\"\n    newTag: \"v1\"",
        ),
        ("x@sha256:12", "newName: \"x\"\n    digest: \"sha256:12\""),
    ] {
        let output = kubectl.run_with("deploy/cluster.sh", &["deploy", image], &[]);
        let said = text(&output.stdout);
        assert!(
            output.status.success() && said.contains(wanted),
            "{image}: {output:?}"
        );
    }
    let output = kubectl.run_with("deploy/cluster.sh", &["deploy"], &[]);
    assert!(!output.status.success() && text(&output.stderr).contains("make deploy IMG="));
}

#[test]
fn a_release_that_lacks_programs_lists_all_of_them() {
    let programs = Programs::new(&[
        ("rustc", "echo /nowhere"),
        ("cargo", "exit 101"),
        ("zig", "exit 1"),
        ("python3", "exit 1"),
        ("helm", "exit 1"),
        ("readelf", "exit 1"),
    ]);
    let output = programs.run("deploy/dist.sh", &[]);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    for cure in [
        "rustup target add x86_64-unknown-linux-musl",
        "rustup target add aarch64-unknown-linux-musl",
        "pip install cargo-zigbuild",
        "pip install ziglang",
        "cargo install --locked cargo-cyclonedx",
        "https://helm.sh/docs/intro/install",
        "binutils",
    ] {
        assert!(said.contains(cure), "{cure}: {said}");
    }
}

/// Programs that build nothing and write what they would have written.
const DIST: &[(&str, &str)] = &[
    ("rustc", "echo /"),
    ("zig", "exit 0"),
    (
        "helm",
        r#"case $1 in package) echo chart > "$3/rke-operator-chart.tgz" ;; esac"#,
    ),
    ("readelf", "echo $INTERPRETER"),
    (
        "cargo",
        r#"for word; do
            case $before in --target) target=$word ;; esac
            before=$word
        done
        case "$1 $2" in
        'zigbuild --release')
            mkdir -p "$CARGO_TARGET_DIR/$target/release"
            printf '#!/bin/sh\n# %s\nexit %s\n' "$target" "${ENDS:-0}" > "$CARGO_TARGET_DIR/$target/release/rke-operator" ;;
        'cyclonedx --quiet') echo "{}" > rke-operator.cdx.json ;;
        esac"#,
    ),
];

#[test]
fn a_release_has_a_program_for_each_architecture_and_checksums_of_all() {
    let programs = Programs::new(DIST);
    let dist = programs.0.path().join("dist");
    let folder = dist.to_str().unwrap();
    let run = |interpreter: &str| {
        programs.run(
            "deploy/dist.sh",
            &[("DIST", folder), ("INTERPRETER", interpreter)],
        )
    };
    let output = run("");
    assert!(output.status.success(), "{output:?}");
    let sums = fs::read_to_string(dist.join("SHA256SUMS")).unwrap();
    let names: Vec<_> = sums.lines().map(|line| line[66..].to_owned()).collect();
    let version = env!("CARGO_PKG_VERSION");
    let named = |rest: &str| format!("rke-operator-{version}-{rest}");
    assert_eq!(
        names,
        [
            "install.sh".to_owned(),
            named("crds.yaml"),
            named("linux-amd64"),
            named("linux-amd64.cdx.json"),
            named("linux-amd64.tar.gz"),
            named("linux-arm64"),
            named("linux-arm64.cdx.json"),
            named("linux-arm64.tar.gz"),
            "rke-operator-chart.tgz".to_owned(),
            "rke-operator.rb".to_owned(),
            "rke-operator.yaml".to_owned(),
        ]
    );
    let arm = fs::read_to_string(dist.join(named("linux-arm64"))).unwrap();
    assert!(arm.contains("# aarch64-unknown-linux-musl\n"), "{arm}");
    package_managers_have_its_checksums(&dist, &sums);

    let output = run("INTERP");
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("is not static"), "{output:?}");
    let breaks = [("DIST", folder), ("INTERPRETER", ""), ("ENDS", "139")];
    let output = programs.run("deploy/dist.sh", &breaks);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("does not run"), "{output:?}");
}

/// The formula and the plugin's manifest name archives of the release, with the checksums that `SHA256SUMS` has.
fn package_managers_have_its_checksums(dist: &Path, sums: &str) {
    let version = env!("CARGO_PKG_VERSION");
    let download = format!(
        "{}/releases/download/v{version}",
        env!("CARGO_PKG_REPOSITORY")
    );
    let formula = fs::read_to_string(dist.join("rke-operator.rb")).unwrap();
    let manifest = fs::read_to_string(dist.join("rke-operator.yaml")).unwrap();
    let plugin: serde_json::Value = serde_saphyr::from_str(&manifest).unwrap();
    assert_eq!(plugin["metadata"]["name"], "rke-operator");
    assert_eq!(plugin["spec"]["version"], format!("v{version}"));
    assert!(
        formula.contains(&format!("version \"{version}\"")),
        "{formula}"
    );
    for (index, architecture) in ["amd64", "arm64"].into_iter().enumerate() {
        let name = format!("rke-operator-{version}-linux-{architecture}.tar.gz");
        let line = sums.lines().find(|line| line.ends_with(&name)).unwrap();
        let (sum, url) = (&line[..64], format!("{download}/{name}"));
        let archive = format!("    url \"{url}\"\n    sha256 \"{sum}\"\n");
        assert!(formula.contains(&archive), "{archive}: {formula}");
        let platform = &plugin["spec"]["platforms"][index];
        assert_eq!(platform["selector"]["matchLabels"]["arch"], architecture);
        assert_eq!(platform["uri"], url);
        assert_eq!(platform["sha256"], sum);
        let listed = Command::new("tar")
            .arg("tzf")
            .arg(dist.join(&name))
            .output()
            .unwrap();
        assert_eq!(text(&listed.stdout), "LICENSE\nrke-operator\n");
        assert_eq!(platform["bin"], "rke-operator");
    }
    assert!(
        !formula.contains('@') && !manifest.contains('@'),
        "{formula}{manifest}"
    );
    let opened = formula.lines().map(str::trim);
    let opened = opened.filter(|line| {
        line.starts_with("class ") || line.starts_with("def ") || line.ends_with(" do")
    });
    let closed = formula.lines().filter(|line| line.trim() == "end").count();
    assert_eq!(opened.count(), closed, "{formula}");
}

/// What records runs the commands; what draws writes a frame.
const RECORD: &[(&str, &str)] = &[
    (
        "asciinema",
        r#"case $1 in --help) exit 0 ;; esac
        for word; do
            case $before in --command) command=$word ;; esac
            before=$word
        done
        sh -c "$command" > "$before""#,
    ),
    (
        "termtosvg",
        r#"case $1 in render) { echo '@keyframes'; cat "$2"; } > "$3" ;; esac"#,
    ),
];

#[test]
fn a_recording_has_each_command_and_is_written_if_all_succeed() {
    let programs = Programs::new(RECORD);
    let file = programs.0.path().join("recording.svg");
    let path = file.to_str().unwrap();
    let run = |commands: &[&str], limit: &str| {
        let args = [&[path], commands].concat();
        programs.run_with("tests/record.sh", &args, &[("MOST", limit)])
    };
    let output = run(&["echo 'one  two'", "echo three"], "1000");
    assert!(output.status.success(), "{output:?}");
    let recorded = fs::read_to_string(&file).unwrap();
    for line in ["echo 'one  two'\none  two\n", "echo three\nthree\n"] {
        assert!(recorded.contains(line), "{line}: {recorded}");
    }
    for (commands, limit, why) in [
        (
            &["exit 7", "echo four"][..],
            "1000",
            "failed with exit code 7",
        ),
        (&["echo five"][..], "10", "10 are the limit"),
        (&[][..], "1000", "usage: "),
    ] {
        let output = run(commands, limit);
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        assert!(text(&output.stderr).contains(why), "{output:?}");
        assert_eq!(fs::read_to_string(&file).unwrap(), recorded, "{why}");
    }
    let without = Programs::new(&[("asciinema", "exit 127")]);
    let output = without.run_with("tests/record.sh", &[path, "true"], &[]);
    assert!(
        text(&output.stderr).contains("pip install 'asciinema<3'"),
        "{output:?}"
    );
}
