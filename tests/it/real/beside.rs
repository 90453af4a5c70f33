//! A server of the test's own beside a lab: in the lab's network, from the image of the lab's registry.

use std::process::Command;

use super::Site;

/// What a program on this machine says; it must end well.
pub(crate) fn ran(program: &str, args: &[&str]) -> String {
    let output = Command::new(program).args(args).output().expect(program);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {args:?}: {stderr}");
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

/// `NAME.pem` and `NAME.key`; signed by itself where there is no authority.
pub(crate) fn certificate(site: &Site, name: &str, ca: Option<&str>, more: &[&str]) {
    let at = |file: String| site.path(&file).display().to_string();
    let (cert, key) = (at(format!("{name}.pem")), at(format!("{name}.key")));
    let subject = format!("/CN={name}");
    let mut args = vec!["req", "-x509", "-nodes", "-days", "30", "-subj", &subject];
    args.extend(["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"]);
    args.extend(["-keyout", &key, "-out", &cert]);
    args.extend(more);
    let signer = ca.map(|ca| (at(format!("{ca}.pem")), at(format!("{ca}.key"))));
    if let Some((ca, key)) = &signer {
        args.extend(["-CA", ca, "-CAkey", key]);
        args.extend(["-addext", "basicConstraints=critical,CA:FALSE"]);
    }
    ran("openssl", &args);
}

/// Starts it, with the test's folder at `/site`, what `docker run` is told besides, and its arguments. The node knows
/// its address, which is returned, as `known_as`.
pub(crate) fn start(
    site: &Site,
    name: &str,
    known_as: &str,
    options: &[&str],
    arguments: &[&str],
) -> String {
    let lab = site.lab.name();
    let registry = format!("rke-lab-{lab}-registry");
    let inspect = |format: &str, name: &str| ran("docker", &["inspect", "--format", format, name]);
    let image = inspect("{{.Config.Image}}", &registry);
    let (name, network) = (format!("rke-lab-{lab}-{name}"), format!("rke-lab-{lab}"));
    let label = format!("{}={lab}", lab::LABEL);
    let folder = format!("{}:/site:ro", site.folder().display());
    let mut args = vec!["run", "--detach", "--name", &name, "--label", &label];
    args.extend(["--network", &network, "--volume", &folder]);
    args.extend(options);
    args.push(&image);
    args.extend(arguments);
    ran("docker", &args);
    let format = format!("{{{{(index .NetworkSettings.Networks \"{network}\").IPAddress}}}}");
    let address = inspect(&format, &name);
    let known = format!("echo {address} {known_as} >>/etc/hosts");
    site.node().sh(&known).expect("the node knows it");
    address
}
