use super::super::fixtures::{cpu_host, gpu_host, request};
use super::super::place::place;
use super::super::preview::preview;
use super::*;
use crate::domain::request::Whereto;
use crate::domain::run::JobKind;

fn plan(request: &LaunchRequest, hosts: &[HostFacts]) -> (RunSpec, Vec<HostRun>) {
    let placements = place(request, hosts).unwrap();
    let spec = spec(request, placements, RunId::new(1_795_000_000_000, 7), Stamp(5));
    let runs = host_runs(&spec, hosts, false);
    (spec, runs)
}

#[test]
fn a_spec_is_named_and_typed_by_its_command() {
    let hosts = [cpu_host("local", 2)];
    let (spec, _) = plan(&request("hvtui train digits", Whereto::Count(Some(2))), &hosts);
    assert_eq!((spec.name.as_str(), spec.kind, spec.world()), ("digits", JobKind::Native, 2));
    let mut named = request("python train.py", Whereto::Count(None));
    named.name = Some("mnist".to_owned());
    let (spec, _) = plan(&named, &hosts);
    assert_eq!((spec.name.as_str(), spec.kind, spec.created), ("mnist", JobKind::Plain, Stamp(5)));
}

#[test]
fn a_launch_counts_before_the_host_and_hvtui_before_both() {
    let mut host = cpu_host("local", 1);
    host.workdir = Some("/srv".to_owned());
    host.env = BTreeMap::from([
        ("A".into(), "host".into()),
        ("B".into(), "host".into()),
        ("RANK".into(), "9".into()),
    ]);
    let mut asked = request("true", Whereto::Count(None));
    asked.env = BTreeMap::from([("B".into(), "run".into())]);
    let (_, runs) = plan(&asked, std::slice::from_ref(&host));
    let rank = &runs[0].ranks[0];
    assert_eq!(
        (rank.env["A"].as_str(), rank.env["B"].as_str(), rank.env["RANK"].as_str()),
        ("host", "run", "0")
    );
    assert_eq!(rank.cwd.as_deref(), Some("/srv"));
    asked.workdir = Some("~/train".to_owned());
    let (_, runs) = plan(&asked, &[host]);
    assert_eq!(runs[0].ranks[0].cwd.as_deref(), Some("~/train"));
}

#[test]
fn the_preview_shows_every_rank() {
    let hosts = [gpu_host("gpu-a", 2), cpu_host("cpu", 1)];
    let mut asked = request("python train.py", Whereto::Count(None));
    asked.command.push("two words \u{1b}[31m".to_owned());
    asked.env = BTreeMap::from([("NOTE".into(), "it's".into())]);
    let (spec, runs) = plan(&asked, &hosts);
    assert!(runs.iter().all(|run| run.grace_ms == GRACE_MS && run.run == spec.id && run.name == "train.py"));
    insta::assert_snapshot!(preview(&spec, &runs).join("\n"));
}
