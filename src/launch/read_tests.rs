use super::*;
use crate::domain::run::JobKind;
use crate::launch::host_list::{host_file, host_list};
use proptest::prelude::*;

fn words(line: &str) -> Vec<String> {
    line.split_whitespace().map(str::to_owned).collect()
}

fn no_variable(_: &str) -> Option<String> {
    None
}

fn fails(written: &Written<'_>) -> String {
    read(written, None, no_variable).unwrap_err().to_string()
}

fn hosts(list: &[(&str, u32)]) -> Vec<(HostId, u32)> {
    list.iter().map(|(host, count)| (HostId::from(*host), *count)).collect()
}

#[test]
fn everything_at_once() {
    let command = words("python train.py");
    let env = vec!["A=1=2".to_owned(), "HOME".to_owned(), "EMPTY=".to_owned()];
    let written = Written {
        name: Some("mnist"),
        kind: Some(JobKind::Plain),
        command: &command,
        np: Some(3),
        hosts: Some("a:2,b"),
        env: &env,
        workdir: Some("~/train"),
        interface: Some("eth0"),
        spool_cap: Some("64M"),
        ..Written::default()
    };
    let request = read(&written, None, |key| (key == "HOME").then(|| "/home/li".to_owned())).unwrap();
    assert_eq!(request.place, PlacementSpec::Hosts { hosts: hosts(&[("a", 2), ("b", 1)]), np: Some(3) });
    let env: Vec<(&str, &str)> = request.env.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
    assert_eq!(env, [("A", "1=2"), ("EMPTY", ""), ("HOME", "/home/li")]);
    assert_eq!((request.name.as_deref(), request.workdir.as_deref()), (Some("mnist"), Some("~/train")));
    assert_eq!(request.options.spool_cap, Some(64 << 20));
    for cap in ["1000", "lots", "-1M"] {
        let fault = fails(&Written { command: &command, spool_cap: Some(cap), ..Written::default() });
        assert_eq!(
            fault,
            format!("--spool-cap {cap}: `{cap}` is no size of 1M or more: write one such as 64M, 256M or 2G")
        );
    }
    assert_eq!((request.kind, request.options.interface.as_deref()), (Some(JobKind::Plain), Some("eth0")));
    assert_eq!(request.command, command);
}

#[test]
fn free_gpus_are_shared_out_over_hosts() {
    let command = words("true");
    let free =
        |ranks| Written { command: &command, free: Some(ranks), per_node: Some(2), ..Written::default() };
    let place = read(&free(4), None, no_variable).unwrap().place;
    let PlacementSpec::Free { ranks: 4, per_host: Some(2), .. } = place else { panic!("{place:?}") };
    let fault = fails(&free(3));
    assert_eq!(fault, "--free 3 --nproc-per-node 2: 3 is not a multiple of 2; ask for 2 or 4");
}

#[test]
fn without_a_place_it_is_a_count() {
    let command = words("true");
    let written = Written { command: &command, ..Written::default() };
    assert_eq!(read(&written, None, no_variable).unwrap().place, PlacementSpec::Count(None));
    let written = Written { np: Some(2), ..written };
    assert_eq!(read(&written, None, no_variable).unwrap().place, PlacementSpec::Count(Some(2)));
}

#[test]
fn what_can_not_start_is_refused() {
    let command = words("true");
    let ok = Written { command: &command, ..Written::default() };
    let empty = vec![" ".to_owned()];
    insta::assert_snapshot!(fails(&Written { np: Some(0), ..ok.clone() }), @"-np 0 starts nothing: give a number of ranks from 1 on");
    insta::assert_snapshot!(fails(&Written { command: &empty, ..ok.clone() }), @"no command to run: write it after `--`, such as `hvtui run -np 2 -- hvtui train digits`");
    insta::assert_snapshot!(fails(&Written { workdir: Some("train"), ..ok.clone() }), @"--workdir train is a relative path: write the whole path on the hosts, or one that begins with ~/");
    insta::assert_snapshot!(fails(&Written { gpus: Some("a:0,1"), np: Some(3), ..ok }), @"-np 3 with 2 picked slots: pick 3, or lower -np");
}

#[test]
fn gpus_can_not_be_asked_for_where_the_line_hides_them() {
    let hides = LaunchRequest { gpu_mask: Some(String::new()), ..LaunchRequest::of(words("true")) };
    let told = |written: Written<'_>| {
        read(&written, Some(hides.clone()), no_variable).map_err(|error| error.to_string())
    };
    let ok = Written { hosts: Some("a:2"), gpus_per_rank: Some(1), ..Written::default() };
    assert!(told(ok).unwrap().hides_gpus());
    insta::assert_snapshot!(told(Written { gpus: Some("a:0"), ..Written::default() }).unwrap_err(), @"--gpus asks for GPUs, and `CUDA_VISIBLE_DEVICES=` of the line hides them all: leave out one of the two");
    insta::assert_snapshot!(told(Written { free: Some(2), ..Written::default() }).unwrap_err(), @"--free asks for GPUs, and `CUDA_VISIBLE_DEVICES=` of the line hides them all: leave out one of the two");
    let each = LaunchRequest { only: Only::Gpus, ..hides.clone() };
    let told_each = read(&Written::default(), Some(each), no_variable).unwrap_err().to_string();
    assert!(told_each.starts_with("--nproc-per-node=gpu asks for GPUs"), "{told_each}");
    assert!(
        told(Written { gpus_per_rank: Some(2), ..Written::default() })
            .unwrap_err()
            .starts_with("--gpus-per-rank asks")
    );
}

#[test]
fn hosts_parted_by_a_space_are_recognised() {
    let command = words("b:1 c:2 -- true");
    let written = Written { command: &command, hosts: Some("a:1"), ..Written::default() };
    insta::assert_snapshot!(fails(&written), @"-H a:1 b:1 c:2: join the hosts with a comma and no space: -H a:1,b:1,c:2");
    insta::assert_snapshot!(fails(&Written { hosts: Some("a:1,"), ..written }), @"-H a:1, b:1 c:2: join the hosts with a comma and no space: -H a:1,b:1,c:2");
    insta::assert_snapshot!(host_list("a:1, b:1").unwrap_err(), @"-H a:1, b:1: join the hosts with a comma and no space: -H a:1,b:1");
}

#[test]
fn ranks_can_be_given_for_each_host_as_torchrun_does() {
    let command = words("true");
    let ok = Written { command: &command, per_node: Some(4), ..Written::default() };
    let goes_to = |written: &Written<'_>| read(written, None, no_variable).unwrap().place;
    assert_eq!(goes_to(&ok), PlacementSpec::Nodes { nodes: 1, each: Some(4) });
    let two = Written { nodes: Some(2), ..ok.clone() };
    assert_eq!(
        goes_to(&Written { np: Some(8), ..two.clone() }),
        PlacementSpec::Nodes { nodes: 2, each: Some(4) }
    );
    let named = PlacementSpec::Hosts { hosts: hosts(&[("a", 4), ("b", 4)]), np: None };
    assert_eq!(goes_to(&Written { hosts: Some("a,b,c"), ..two.clone() }), named);
    insta::assert_snapshot!(fails(&Written { np: Some(6), ..two }), @"-np 6 with 2 hosts of 4 ranks each: -np must be 8, or leave it out");
    insta::assert_snapshot!(fails(&Written { per_node: Some(0), ..ok.clone() }), @"--nproc-per-node 0 starts nothing: give a number from 1 on");
    insta::assert_snapshot!(fails(&Written { gpus_per_rank: Some(0), ..ok }), @"--gpus-per-rank 0: give a number from 1 on; slots = N in the hosts file gives CPU slots");
}

#[test]
fn host_lists_as_horovodrun_and_mpirun_take_them() {
    assert_eq!(host_list("a:2,b:2").unwrap(), hosts(&[("a", 2), ("b", 2)]));
    assert_eq!(host_list("a,b,a").unwrap(), hosts(&[("a", 2), ("b", 1)]));
    let texts: Vec<String> = ["", "a:0", "a:x", "a:", "li@a:2", "a:2,,b", "-x:1", "a:99999999999"]
        .iter()
        .map(|list| host_list(list).unwrap_err().to_string())
        .map(|text| text.split(';').next().unwrap().to_owned())
        .collect();
    insta::assert_snapshot!(texts.join("\n"), @"
    -H : `` names a host that is empty
    -H a:0: `a:0` asks for 0 ranks
    -H a:x: `a:x` has `x` where a number of ranks belongs
    -H a:: `a:` has `` where a number of ranks belongs
    -H li@a:2: `li@a:2` holds a user, which belongs into the hosts file
    -H a:2,,b: `` names a host that is empty
    -H -x:1: `-x:1` names a host that begins with `-`
    -H a:99999999999: `a:99999999999` has `99999999999` where a number of ranks belongs
    ");
}

#[test]
fn host_files_as_the_launchers_take_them() {
    let text = "# two racks\n\na slots=2  # left\nb:3\n  c\na slots=1\n";
    assert_eq!(host_file("h", text).unwrap(), hosts(&[("a", 3), ("b", 3), ("c", 1)]));
    assert_eq!(host_file("h", "a slots=1 max_slots=2\nb max-slots=1").unwrap(), hosts(&[("a", 1), ("b", 1)]));
    let texts: Vec<String> =
        ["# none\n", "a\nb slots=x\n", "a slots=2 port=22", "a 2", "li@a slots=1", "a slots=3 max_slots=2"]
            .iter()
            .map(|text| host_file("hosts", text).unwrap_err().to_string())
            .collect();
    insta::assert_snapshot!(texts.join("\n"), @"
    host file hosts names no host: write one a line, such as `gpu-a slots=2`
    host file hosts, line 2: `b slots=x` has `x` where a number of ranks belongs; write `gpu-a slots=2`, `gpu-a:2` or `gpu-a`
    host file hosts, line 1: `a slots=2 port=22` has `port`, which is not supported yet; write `gpu-a slots=2`, `gpu-a:2` or `gpu-a`
    host file hosts, line 1: `a 2` has the stray word `2`; write `gpu-a slots=2`, `gpu-a:2` or `gpu-a`
    host file hosts, line 1: `li@a slots=1` holds a user, which belongs into the hosts file; write `gpu-a slots=2`, `gpu-a:2` or `gpu-a`
    host file hosts, line 1: `a slots=3 max_slots=2` has 3 slots and max_slots=2; write `gpu-a slots=2`, `gpu-a:2` or `gpu-a`
    ");
}

#[test]
fn picks_by_number_and_uuid() {
    let pick = |host: &str, slot| Pick { host: HostId::from(host), slot };
    let uuid = SlotName::Uuid("GPU-3f-1".to_owned());
    assert_eq!(
        picks("a:0,1; b:GPU-3f-1").unwrap(),
        [pick("a", SlotName::Index(0)), pick("a", SlotName::Index(1)), pick("b", uuid)]
    );
    assert_eq!(picks("a:0-2;").unwrap(), picks("a:0,1,2").unwrap(), "as the list of runs tells them");
    assert_eq!(picks("a:3-3;;b:0").unwrap(), picks("a:3;b:0").unwrap());
    let texts: Vec<String> =
        ["a", "a:", "a:x", ":0", "", " ;", "a:2-1", "a:0-4294967295", "a:0-1,1", "a:0;a:0"]
            .iter()
            .map(|text| picks(text).unwrap_err().to_string())
            .map(|text| text.split("; write").next().unwrap().to_owned())
            .collect();
    insta::assert_snapshot!(texts.join("\n"), @"
    --gpus: `a` has no `:`
    --gpus: `a:` has ``, which is no slot's number and no GPU UUID
    --gpus: `a:x` has `x`, which is no slot's number and no GPU UUID
    --gpus: `:0` names a host that is empty
    --gpus: `` names no slot
    --gpus: ` ;` names no slot
    --gpus: `a:2-1` has `2-1`, which is no slot's number and no GPU UUID
    --gpus: `a:0-4294967295` has `0-4294967295`, which is no slot's number and no GPU UUID
    --gpus: a:1 is named twice: one rank a slot
    --gpus: a:0 is named twice: one rank a slot
    ");
}

#[test]
fn hosts_alone_mean_all_their_free_slots() {
    let command = words("true");
    let place = |gpus: &str, np| {
        let written = Written { command: &command, gpus: Some(gpus), np, ..Written::default() };
        read(&written, None, no_variable).map(|request| request.place)
    };
    let free = |hosts: &[&str], np| {
        let hosts = hosts.iter().map(|host| (HostId::from(*host), FREE_SLOTS)).collect();
        PlacementSpec::Hosts { hosts, np }
    };
    assert_eq!(place("a", None).unwrap(), free(&["a"], None));
    assert_eq!(place("a; b;a", Some(3)).unwrap(), free(&["a", "b"], Some(3)));
    // neither slots without their host nor slots of some hosts alone
    for (text, part) in [("0", "0"), ("GPU-3f", "GPU-3f"), ("a;b:0", "a"), ("0,1", "0,1")] {
        let fault = place(text, None).unwrap_err().to_string();
        assert!(fault.starts_with(&format!("--gpus: `{part}` has no `:`; write ")), "{fault}");
    }
}

#[test]
fn fewer_ranks_than_picks_take_the_first_ones() {
    let command = words("true");
    let written = Written { command: &command, gpus: Some("a:3,1"), np: Some(1), ..Written::default() };
    let first = Pick { host: HostId::from("a"), slot: SlotName::Index(3) };
    assert_eq!(read(&written, None, no_variable).unwrap().place, PlacementSpec::Picks(vec![first]));
}

#[test]
fn variables_that_hvtui_sets_are_refused() {
    let fault = |entry: &str| env(&[entry.to_owned()], no_variable).unwrap_err().to_string();
    insta::assert_snapshot!(fault("RANK=3"), @"--env RANK=3: `RANK` is set by hvtui itself, for each rank");
    insta::assert_snapshot!(fault("=3"), @"--env =3: `` is no name of a variable: letters, digits and `_`, no digit first");
    insta::assert_snapshot!(fault("TOKEN"), @"--env TOKEN: it is not set here; write --env TOKEN=VALUE");
}

proptest! {
    #[test]
    fn nothing_written_panics(text in ".{0,40}", stray in prop::collection::vec("[a-c:,0-3 ]{0,6}", 0..3)) {
        let _ = (host_list(&text), host_file("f", &text), picks(&text), env(std::slice::from_ref(&text), no_variable));
        let written = Written { hosts: Some(&text), command: &stray, ..Written::default() };
        let _ = read(&written, None, no_variable);
    }

    #[test]
    fn well_formed_lists_are_read_back(list in prop::collection::btree_map("[a-z][a-z0-9-]{0,8}", 1_u32..99, 1..6)) {
        let text: Vec<String> = list.iter().map(|(host, count)| format!("{host}:{count}")).collect();
        let read = host_list(&text.join(",")).unwrap();
        let lines: Vec<String> = list.iter().map(|(host, count)| format!("{host} slots={count}")).collect();
        prop_assert_eq!(&read, &host_file("f", &lines.join("\n")).unwrap());
        let back: BTreeMap<String, u32> = read.into_iter().map(|(host, count)| (host.to_string(), count)).collect();
        prop_assert_eq!(back, list);
    }
}

#[test]
fn a_value_behind_a_secret_name_is_refused_and_not_said_again() {
    let error = secret_env(&["TOKEN=hunter2hunter2".to_owned()]).unwrap_err().to_string();
    assert!(
        error.contains("export TOKEN, then write --secret-env TOKEN") && !error.contains("hunter2"),
        "{error}"
    );
}
