//! GPUs and hosts as hvtui reads them: the real `nvml-wrapper` over the scripted NVML library, real processes, the
//! real `/proc`.

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use crate::common::alone::alone;
use crate::common::built;
use crate::common::cluster::skip;
use crate::common::fake_nvml::FakeNvml;
use crate::common::in_time::OutputInTime;
use crate::common::processes::end_of;
use hvtui::domain::gpu::{GpuProcess, Reading};
use hvtui::domain::host::{GpuAbsenceReason, HostSample};
use hvtui::domain::ids::GpuUuid;
use hvtui::domain::time::HostTime;
use hvtui::telemetry::{Sampler, SamplerConfig};
use serde_json::{Value, json};

const SECOND: u64 = 1_000_000;

/// A clock that stands at this second.
fn at(seconds: u64) -> impl Fn() -> HostTime + Send + Sync + Copy {
    move || HostTime(seconds * SECOND)
}

/// The same for a host whose GPUs' threads have no processor until `of_gpus`.
fn late(seconds: u64, of_gpus: u64) -> impl Fn() -> HostTime + Send + Sync + Copy {
    move || {
        let is_gpus = std::thread::current().name().is_some_and(|name| name.starts_with("nvml-"));
        at(if is_gpus { of_gpus } else { seconds })()
    }
}

/// Deadlines that a loaded machine does not miss.
fn patient(library: PathBuf) -> SamplerConfig {
    SamplerConfig {
        nvml_lib: Some(library),
        start_deadline: Duration::from_secs(60),
        sample_deadline: Duration::from_secs(60),
        ..SamplerConfig::default()
    }
}

/// Deadlines for tests that wait for them to pass.
fn hasty(library: PathBuf) -> SamplerConfig {
    SamplerConfig {
        start_deadline: Duration::from_millis(50),
        sample_deadline: Duration::from_millis(50),
        ..patient(library)
    }
}

pub(crate) fn start(fake: &FakeNvml) -> Sampler {
    Sampler::start(patient(fake.own_library()), at(0))
}

fn failure<T>(reading: &Reading<T>) -> &str {
    match reading {
        Reading::Failed { error } => error,
        Reading::Value(_) => panic!("a value where a failure was expected"),
        Reading::Unsupported => panic!("not supported where a failure was expected"),
    }
}

#[test]
fn every_value_of_two_h200s_comes_through() {
    let fake = FakeNvml::new(&json!({
        "driver": "580.95.05",
        "cuda": 13000,
        "gpus": [
            {
                "uuid": "GPU-3f2a91c0-0000-4000-8000-000000000001", "pci": "00000000:0A:00.0",
                "util": 97, "memory_used": 140_660_178_944_u64, "memory_total": 150_754_820_096_u64,
                "temperature": 71, "power_mw": 690_120, "power_limit_mw": 700_000,
                "clock_sm_mhz": 1980, "clock_memory_mhz": 3201, "pstate": 0, "throttle": 4,
            },
            { "uuid": "GPU-91be77aa-0000-4000-8000-000000000002", "pci": "00000000:0B:00.0", "pstate": 8 },
        ],
    }));
    let mut sampler = start(&fake);
    let info = sampler.info();
    assert_eq!(info.gpu_absence, None);
    assert_eq!(info.driver, Reading::Value("580.95.05".to_owned()));
    assert!(info.cuda_driver.value().is_some(), "{:?}", info.cuda_driver);
    assert_eq!(info.gpus.len(), 2);
    assert_eq!(info.gpus[0].index, 0);
    assert_eq!(info.gpus[0].uuid, GpuUuid::from("GPU-3f2a91c0-0000-4000-8000-000000000001"));
    assert_eq!(info.gpus[0].name, "NVIDIA H200");
    assert_eq!(info.gpus[0].pci, Reading::Value("00000000:0A:00.0".to_owned()));
    assert_eq!(info.gpus[0].memory_total, Reading::Value(150_754_820_096));
    assert_eq!(info.gpus[1].pci, Reading::Value("00000000:0B:00.0".to_owned()));

    let sample = sampler.sample(at(1));
    let busy = &sample.gpus[0];
    assert_eq!(busy.index, 0);
    assert_eq!(busy.util, Reading::Value(97));
    assert_eq!(busy.memory_used, Reading::Value(140_660_178_944));
    assert_eq!(busy.memory_total, Reading::Value(150_754_820_096));
    assert_eq!(busy.temperature, Reading::Value(71));
    assert_eq!(busy.power_mw, Reading::Value(690_120));
    assert_eq!(busy.power_limit_mw, Reading::Value(700_000));
    assert_eq!(busy.clock_sm_mhz, Reading::Value(1980));
    assert_eq!(busy.clock_memory_mhz, Reading::Value(3201));
    assert_eq!(busy.pstate, Reading::Value(0));
    assert_eq!(busy.throttle, Reading::Value(vec!["sw power cap".to_owned()]));
    assert_eq!(busy.processes, Reading::Value(vec![]));
    let idle = &sample.gpus[1];
    assert_eq!((idle.index, &idle.util, &idle.pstate), (1, &Reading::Value(0), &Reading::Value(8)));
    assert_eq!(idle.throttle, Reading::Value(vec![]), "an idle GPU is not held down");
}

#[test]
fn the_host_is_read_beside_its_gpus() {
    let fake = FakeNvml::idle(1);
    let config = SamplerConfig {
        ssh_connection: Some("10.0.0.1 50022 10.0.0.13 22".to_owned()),
        ..patient(fake.own_library())
    };
    let mut sampler = Sampler::start(config, at(0));
    let info = sampler.info();
    let asked = |program: &str, argument: &str| {
        let output = Command::new(program).arg(argument).output_in_time().unwrap();
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    };
    assert_eq!(info.hostname, asked("uname", "-n"));
    assert_eq!(info.kernel, asked("uname", "-r"));
    assert_eq!(info.arch, asked("uname", "-m"));
    assert_eq!(info.user, asked("id", "-un"));
    assert_eq!(info.ssh_client_address, Some("10.0.0.1".parse().unwrap()));
    assert_eq!(info.ssh_server_address, Some("10.0.0.13".parse().unwrap()));
    let sample = sampler.sample(at(1));
    assert!(sample.memory_used.value() < info.memory_total.value());
    assert!(sample.load.value().is_some() && sample.net_tx.value().is_some());
}

#[test]
fn what_a_device_does_not_support_is_no_zero() {
    let fake = FakeNvml::new(&json!({ "gpus": [{ "errors": {
        "util": "not_supported", "power": "not_supported", "pstate": "unknown", "clock": "no_permission",
        "graphics_processes": "not_supported", "throttle": "reset_required",
    } }] }));
    let sample = start(&fake).sample(at(1));
    let gpu = &sample.gpus[0];
    assert_eq!(gpu.util, Reading::Unsupported);
    assert_eq!(gpu.power_mw, Reading::Unsupported);
    assert_eq!(failure(&gpu.pstate), "an internal driver error occurred");
    assert_eq!(
        failure(&gpu.clock_sm_mhz),
        "the current user does not have permission to perform this operation"
    );
    assert_eq!(failure(&gpu.throttle), "device requires a reset before it can be used again");
    assert_eq!(gpu.processes, Reading::Value(vec![]), "the compute list is an answer of its own");
    assert_eq!(gpu.temperature, Reading::Value(34));
}

#[test]
fn a_mig_device_has_no_utilisation() {
    // Some drivers answer 0 and not NotSupported.
    let fake = FakeNvml::new(&json!({ "gpus": [{ "mig": true, "util": 0 }, { "util": 0 }] }));
    let sample = start(&fake).sample(at(1));
    assert_eq!(sample.gpus[0].util, Reading::Unsupported);
    assert_eq!(sample.gpus[1].util, Reading::Value(0));
}

#[test]
fn slices_come_and_go_while_a_host_is_watched() {
    let gpu = |slices: Value| json!({ "gpus": [{ "mig": true, "slices": slices }, {}] });
    let fake = FakeNvml::new(&gpu(json!([{ "memory_used": 5 }])));
    let mut sampler = start(&fake);
    let told = |sampler: &mut Sampler, second: u64| {
        let sample = sampler.sample(at(second));
        let infos = sampler.info().gpus;
        let indices: Vec<u32> = infos.iter().map(|gpu| gpu.index).collect();
        assert_eq!(sample.gpus.iter().map(|gpu| gpu.index).collect::<Vec<_>>(), indices);
        (indices, infos[0].slices, sample)
    };
    let (indices, slices, sample) = told(&mut sampler, 1);
    assert_eq!((indices, slices), (vec![0, 100, 1], Some(1)));
    let slice = &sample.gpus[1];
    assert_eq!((&slice.memory_used, &slice.util), (&Reading::Value(5), &Reading::Unsupported));
    assert_eq!((&slice.temperature, &slice.processes), (&Reading::Unsupported, &Reading::Value(vec![])));
    fake.set(&gpu(json!([null, { "uuid": "MIG-other" }, { "profile": "2g.35gb" }])));
    let (indices, slices, _) = told(&mut sampler, 2);
    assert_eq!((indices, slices), (vec![0, 101, 102, 1], Some(2)));
    assert_eq!(sampler.info().gpus[2].name, "NVIDIA H200 MIG 2g.35gb");
    fake.set(&gpu(json!([])));
    assert_eq!(told(&mut sampler, 3).1, Some(0), "MIG, no slices");
    fake.set(&json!({ "gpus": [{}, {}] }));
    let (indices, slices, sample) = told(&mut sampler, 4);
    assert_eq!((indices, slices), (vec![0, 1], None));
    assert_eq!(sample.gpus[0].util, Reading::Value(0));
    fake.set(&json!({ "gpus": [{ "mig": true, "slices": [{}], "lost": true }, {}] }));
    let (indices, ..) = told(&mut sampler, 5);
    assert_eq!(indices, [0, 1], "of a lost GPU no slices are told");
}

#[test]
fn clocks_that_are_held_down_say_why() {
    let fake = FakeNvml::new(&json!({ "gpus": [{ "throttle": 0x4 | 0x40 }, { "throttle": 0x1000 }] }));
    let sample = start(&fake).sample(at(1));
    let words = |index: usize| sample.gpus[index].throttle.value().unwrap().clone();
    assert_eq!(words(0), ["sw power cap", "hw thermal slowdown"]);
    assert_eq!(words(1), ["unknown reason 0x1000"]);
}

#[test]
fn a_driver_before_510_tells_its_memory() {
    let mut gpu =
        json!({ "memory_used": 5, "memory_total": 7, "errors": { "memory": "function_not_found" } });
    let fake = FakeNvml::new(&json!({ "gpus": [gpu.clone()] }));
    let mut sampler = start(&fake);
    assert_eq!(sampler.info().gpus[0].memory_total, Reading::Value(7));
    assert_eq!(sampler.sample(at(1)).gpus[0].memory_used, Reading::Value(5));
    gpu["errors"]["memory_v1"] = json!("gpu_is_lost");
    fake.set(&json!({ "gpus": [gpu] }));
    assert!(failure(&sampler.sample(at(2)).gpus[0].memory_used).contains("fell off the bus"));
}

#[test]
fn processes_have_owners_and_commands() {
    let mut child = Command::new("sleep").arg("1000").spawn().unwrap();
    let mut gone = Command::new("true").spawn().unwrap();
    end_of(&mut gone);
    let fake = FakeNvml::new(&json!({ "gpus": [{ "processes": [
        { "pid": "self", "memory": 1_048_576 },
        { "pid": "self", "memory": 1_048_576, "graphics": true },
        { "pid": child.id(), "graphics": true },
        { "pid": gone.id(), "memory": 4096 },
    ] }] }));
    let sample = start(&fake).sample(at(1));
    child.kill().unwrap();
    end_of(&mut child);

    let processes = sample.gpus[0].processes.value().unwrap();
    let of = |pid: u32| -> &GpuProcess { processes.iter().find(|one| one.pid == pid).unwrap() };
    assert_eq!(processes.len(), 3, "{processes:?}");
    let user = String::from_utf8(Command::new("id").arg("-un").output_in_time().unwrap().stdout).unwrap();
    let test = of(std::process::id());
    assert_eq!(test.user, Reading::Value(user.trim().to_owned()));
    let own = std::env::current_exe().unwrap();
    let name = own.file_name().unwrap().to_str().unwrap();
    assert!(test.command.value().unwrap().contains(name), "{:?}", test.command);
    assert_eq!(test.memory, Reading::Value(1_048_576), "in both lists, and once in the sum");
    assert_eq!(of(child.id()).command, Reading::Value("sleep 1000".to_owned()));
    assert_eq!(of(child.id()).memory, Reading::Unsupported);
    assert!(failure(&of(gone.id()).user).contains("not visible here"));
    assert_eq!(of(gone.id()).memory, Reading::Value(4096));
}

#[test]
fn a_gpu_that_is_asked_late_tells_the_use_of_its_processes_all_the_same() {
    let script =
        |sm: Value| json!({ "gpus": [{ "processes": [{ "pid": "self", "memory": 4096, "sm": sm }] }] });
    let fake = FakeNvml::new(&script(json!([87, 60_000_000])));
    let mut sampler = start(&fake);
    let use_of = |sample: HostSample| sample.gpus[0].processes.value().unwrap()[0].sm_percent.clone();
    assert_eq!(use_of(sampler.sample(late(1, 6))), Reading::Value(87));
    fake.set(&script(json!([40, 61_000_000])));
    assert_eq!(use_of(sampler.sample(at(7))), Reading::Value(40));
}

#[test]
fn processes_tell_their_use_and_their_age() {
    let mut child = Command::new("sleep").arg("1000").spawn().unwrap();
    let script = |busy: Value, rest: Value| {
        json!({ "gpus": [{ "processes": [
            { "pid": "self", "memory": 4096, "sm": busy },
            { "pid": child.id(), "memory": 4096 },
        ], "errors": rest }] })
    };
    let fake = FakeNvml::new(&script(json!([87, 60_000_000]), json!({})));
    let mut sampler = start(&fake);
    let mut sm = |second: u64| {
        let sample = sampler.sample(at(second));
        let processes = sample.gpus[0].processes.value().unwrap().clone();
        let of = |pid: u32| processes.iter().find(|one| one.pid == pid).unwrap().clone();
        [of(std::process::id()), of(child.id())]
    };
    let [test, idle] = sm(1);
    assert_eq!((&test.sm_percent, &idle.sm_percent), (&Reading::Value(87), &Reading::Value(0)));
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", child.id())).unwrap();
    let ticks: u64 = stat.rsplit_once(')').unwrap().1.split_whitespace().nth(19).unwrap().parse().unwrap();
    assert_eq!(idle.start_ticks, Reading::Value(ticks));
    assert!(*idle.age_s.value().unwrap() < 600, "{:?}", idle.age_s);
    assert_eq!(idle.key().unwrap().pid, child.id());

    // nothing new within the window: what was measured still holds; later it is over
    assert_eq!(sm(2)[0].sm_percent, Reading::Value(87));
    assert_eq!(sm(4)[0].sm_percent, Reading::Value(0));
    fake.set(&script(json!([33, 63_500_000]), json!({})));
    assert_eq!(sm(5)[0].sm_percent, Reading::Value(33));
    fake.set(&script(json!([3300, 64_500_000]), json!({})));
    assert_eq!(failure(&sm(6)[0].sm_percent), "the driver says 3300 percent");
    fake.set(&script(Value::Null, json!({ "process_utilization": "unknown" })));
    assert!(failure(&sm(7)[1].sm_percent).contains("internal driver error"));
    fake.set(&script(Value::Null, json!({ "process_utilization": "not_supported" })));
    assert_eq!(sm(8)[1].sm_percent, Reading::Unsupported);
    child.kill().unwrap();
    end_of(&mut child);
}

#[test]
fn values_walk_as_the_script_says() {
    let fake = FakeNvml::new(&json!({ "walk": "queries", "gpus": [{ "util": [10, 50, 90] }] }));
    let mut sampler = start(&fake);
    let walk: Vec<u32> =
        (1..=4).map(|second| *sampler.sample(at(second)).gpus[0].util.value().unwrap()).collect();
    assert_eq!(walk, [10, 50, 90, 10]);
}

#[test]
fn a_lost_gpu_leaves_the_others_alone() {
    let script = |lost: bool| json!({ "gpus": [{ "util": 5 }, { "util": 6, "lost": lost }, { "util": 7 }] });
    let fake = FakeNvml::new(&script(false));
    let mut sampler = start(&fake);
    assert_eq!(sampler.sample(at(1)).gpus[1].util, Reading::Value(6));
    fake.set(&script(true));
    let sample = sampler.sample(at(2));
    assert_eq!((&sample.gpus[0].util, &sample.gpus[2].util), (&Reading::Value(5), &Reading::Value(7)));
    for error in [
        failure(&sample.gpus[1].util),
        failure(&sample.gpus[1].memory_used),
        failure(&sample.gpus[1].temperature),
        failure(&sample.gpus[1].processes),
    ] {
        assert!(error.contains("fell off the bus"), "{error}");
    }
    fake.set(&script(false));
    assert_eq!(sampler.sample(at(3)).gpus[1].util, Reading::Value(6));
}

#[test]
fn a_gpu_lost_from_the_start_keeps_its_row() {
    let fake = FakeNvml::new(&json!({ "gpus": [{}, { "lost": true }] }));
    let mut sampler = start(&fake);
    let info = sampler.info();
    assert_eq!(info.gpus[1].uuid, GpuUuid::from("GPU-unreadable-1"));
    assert!(info.gpus[1].name.contains("fell off the bus"), "{}", info.gpus[1].name);
    let sample = sampler.sample(at(1));
    assert_eq!(sample.gpus.len(), 2);
    assert_eq!(sample.gpus[0].util, Reading::Value(0));
    // it is back: its facts are asked again
    fake.set(&json!({ "gpus": [{}, {}] }));
    for second in 2..4 {
        assert_eq!(sampler.sample(at(second)).gpus[1].util, Reading::Value(0));
    }
    let back = &sampler.info().gpus[1];
    assert!(back.uuid.is_readable() && !back.name.contains("unreadable"), "{} {}", back.uuid, back.name);
}

#[test]
fn each_absence_has_its_reason() {
    use GpuAbsenceReason as Reason;
    let absence = |library: PathBuf| {
        let mut sampler = Sampler::start(patient(library), at(0));
        let info = sampler.info();
        assert_eq!(info.gpus, []);
        let sample = sampler.sample(at(1));
        assert_eq!(sample.gpus, []);
        assert!(sample.memory_used.value().is_some(), "the host itself is there");
        info.gpu_absence.unwrap()
    };
    let scripted = |script: Value| {
        let fake = FakeNvml::new(&script);
        absence(fake.own_library())
    };

    let nowhere = absence(PathBuf::from("/nonexistent/libnvidia-ml.so.1"));
    assert_eq!(nowhere.reason, Reason::NoLibrary);
    assert!(nowhere.detail.starts_with("/nonexistent/libnvidia-ml.so.1: cannot open"), "{}", nowhere.detail);

    let text = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(text.path(), "no library at all").unwrap();
    assert_eq!(absence(text.path().to_owned()).reason, Reason::Other);

    let mismatch = scripted(json!({ "init": "lib_rm_version_mismatch", "library": "550.90.07" }));
    assert_eq!(mismatch.reason, Reason::DriverMismatch);
    assert!(mismatch.detail.ends_with("loaded, library 550.90.07 installed"), "{}", mismatch.detail);

    let unloaded = scripted(json!({ "init": "driver_not_loaded", "library": "550.90.07" }));
    assert_eq!(unloaded.reason, Reason::DriverNotLoaded);
    assert_eq!(unloaded.detail, "NVIDIA driver is not loaded; library 550.90.07 installed");

    let empty = scripted(json!({ "driver": "580.95.05" }));
    assert_eq!(empty.reason, Reason::NoDevice);
    assert_eq!(empty.detail, "driver 580.95.05 counts 0 devices");

    assert_eq!(scripted(json!({ "init": "no_permission" })).reason, Reason::NoPermission);
    assert_eq!(scripted(json!({ "init": "unknown" })).reason, Reason::Other);
}

#[test]
fn a_host_without_nvidia_parts_has_nothing_to_fail() {
    let sampler = Sampler::start(patient(PathBuf::from("/nonexistent/libnvidia-ml.so.1")), at(0));
    let info = sampler.info();
    assert_eq!(info.driver, Reading::Unsupported);
    if info.cuda_driver.value().is_none() {
        assert_eq!((info.cuda_driver, info.nccl), (Reading::Unsupported, Reading::Unsupported));
    }
}

/// NVIDIA's packages install NCCL as `libnccl.so.2` alone, a name that the bindings do not try.
#[test]
fn cuda_and_nccl_are_found_by_the_names_that_packages_give_them() {
    let nowhere = || patient(PathBuf::from("/nonexistent/libnvidia-ml.so.1"));
    let inside = std::env::var_os("HVTUI_TEST_ALONE").is_some();
    if !inside && Sampler::start(nowhere(), at(0)).info().cuda_driver.value().is_some() {
        return skip("this machine's own libcuda comes before the scripted one");
    }
    let fake = FakeNvml::new(&json!({ "cuda": 12_080, "nccl": 22_903 }));
    let folder = tempfile::tempdir().unwrap();
    for name in ["libcuda.so.1", "libnccl.so.2"] {
        std::fs::copy(built::example("libfake_nvml.so"), folder.path().join(name)).unwrap();
    }
    let mut env = fake.env().to_vec();
    env.push(("LD_LIBRARY_PATH", folder.path().into()));
    if alone("telemetry::cuda_and_nccl_are_found_by_the_names_that_packages_give_them", &env) {
        let info = Sampler::start(nowhere(), at(0)).info();
        assert_eq!(info.cuda_driver, Reading::Value("12.8".to_owned()));
        assert_eq!(info.nccl, Reading::Value("2.29.3".to_owned()));
        assert_eq!(info.driver, Reading::Unsupported);
    }
}

#[test]
fn a_driver_that_comes_later_is_found() {
    let fake = FakeNvml::new(&json!({ "init": "driver_not_loaded" }));
    let mut sampler = start(&fake);
    assert_eq!(sampler.sample(at(1)).gpus, []);
    fake.set(&json!({ "gpus": [{ "util": 12 }] }));
    assert_eq!(sampler.sample(at(2)).gpus, [], "not asked again so soon");
    let sample = sampler.sample(at(40));
    assert_eq!(sample.gpus[0].util, Reading::Value(12));
    assert_eq!(sampler.info().gpus.len(), 1);
    assert_eq!(sampler.info().gpu_absence, None);
}

/// Samples until `done`, at one and the same moment: what is awaited is another thread.
fn sample_until(sampler: &mut Sampler, second: u64, done: impl Fn(&HostSample) -> bool) -> HostSample {
    loop {
        let sample = sampler.sample(at(second));
        if done(&sample) {
            return sample;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// How many threads of this process are NVML's.
fn nvml_threads() -> usize {
    std::fs::read_dir("/proc/self/task")
        .unwrap()
        .filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("comm")).ok())
        .filter(|name| name.starts_with("nvml-"))
        .count()
}

#[test]
fn a_call_that_hangs_holds_up_nothing_else() {
    // made before, so that the process of its own finds it
    built::example("libfake_nvml.so");
    if !alone("telemetry::a_call_that_hangs_holds_up_nothing_else", &[]) {
        return;
    }
    let script = |hang: &[&str]| json!({ "hang": hang, "gpus": [{ "util": 5 }, { "util": 6 }] });
    let fake = FakeNvml::new(&script(&[]));
    // The start is waited for in full, the deadline of a sample passes at once.
    let config = SamplerConfig { start_deadline: Duration::from_secs(60), ..hasty(fake.own_library()) };
    let mut sampler = Sampler::start(config, at(0));
    sample_until(&mut sampler, 1, |sample| sample.gpus[1].util == Reading::Value(6));

    fake.set(&script(&["nvmlDeviceGetPowerUsage:1"]));
    let silent = Reading::failed("no answer from NVML for 1 s");
    let sample = sample_until(&mut sampler, 2, |sample| sample.gpus[1].util == silent);
    assert!(sample.memory_used.value().is_some() && sample.load.value().is_some());
    for seconds in [5, 9, 62] {
        let answers = |sample: &HostSample| sample.gpus[0].util == Reading::Value(5);
        let sample = sample_until(&mut sampler, 2 + seconds, answers);
        let expected = format!("no answer from NVML for {seconds} s");
        assert_eq!(failure(&sample.gpus[1].util), expected);
        assert_eq!(failure(&sample.gpus[1].processes), expected);
        assert!(sample.memory_used.value().is_some());
        assert_eq!(nvml_threads(), 2, "a thread a GPU, however long one hangs");
    }

    fake.set(&script(&[]));
    let sample = sample_until(&mut sampler, 70, |sample| sample.gpus[1].util.value().is_some());
    assert_eq!(sample.gpus[1].util, Reading::Value(6));
    assert_eq!(nvml_threads(), 2);
}

#[test]
fn a_gpu_that_hangs_from_the_start_has_a_row_that_says_so() {
    let script =
        |hang: &[&str]| json!({ "hang": hang, "gpus": [{ "util": 5 }, { "util": 6 }, { "util": 7 }] });
    let fake = FakeNvml::new(&script(&["nvmlDeviceGetName:1"]));
    let config = SamplerConfig { start_deadline: Duration::from_millis(500), ..patient(fake.own_library()) };
    let mut sampler = Sampler::start(config, at(0));
    let told =
        |sampler: &Sampler| sampler.info().gpus.iter().map(|gpu| gpu.uuid.is_readable()).collect::<Vec<_>>();
    // those that answer may need longer than the start waits
    let answers = |sample: &HostSample| {
        sample.gpus[0].util == Reading::Value(5) && sample.gpus[2].util == Reading::Value(7)
    };
    let sample = sample_until(&mut sampler, 1, answers);
    assert_eq!(told(&sampler), [true, false, true]);
    assert!(sampler.info().gpus[1].name.contains("no answer from NVML"), "{}", sampler.info().gpus[1].name);
    assert_eq!(failure(&sample.gpus[1].util), "no answer from NVML since the agent started");
    fake.set(&script(&[]));
    let sample = sample_until(&mut sampler, 2, |sample| sample.gpus[1].util.value().is_some());
    assert_eq!(sample.gpus[1].util, Reading::Value(6));
    assert_eq!(told(&sampler), [true; 3]);
}

#[test]
fn what_goes_over_nvlink_is_a_rate() {
    let script = |received: u64, sent: u64, down: u32| {
        let gpu =
            json!({ "nvlinks": 4, "nvlinks_down": down, "nvlink_rx_kib": received, "nvlink_tx_kib": sent });
        json!({ "gpus": [gpu, { "nvlinks": 0 }, { "errors": { "fields": "gpu_is_lost" } }] })
    };
    let fake = FakeNvml::new(&script(1000, 500, 1));
    let mut sampler = start(&fake);
    let sample = sampler.sample(at(1));
    assert_eq!(failure(&sample.gpus[0].nvlink_rx_bytes_per_s), "not read yet", "a counter alone is no rate");
    assert_eq!(sample.gpus[1].nvlink_rx_bytes_per_s, Reading::Unsupported, "there is no link");
    fake.set(&script(3000, 600, 1));
    let gpu = &sampler.sample(at(3)).gpus[0];
    // Three links are up: 2000 KiB each in two seconds.
    assert_eq!(gpu.nvlink_rx_bytes_per_s, Reading::Value(3 * 1000 * 1024));
    assert_eq!(gpu.nvlink_tx_bytes_per_s, Reading::Value(3 * 50 * 1024));
    fake.set(&script(3000, 600, 2));
    let gpu = &sampler.sample(at(4)).gpus[0];
    assert!(
        failure(&gpu.nvlink_rx_bytes_per_s).contains("set of active NVLinks changed"),
        "a link that goes down is no negative rate"
    );
    fake.set(&script(3000, 600, 1));
    let gpu = &sampler.sample(at(5)).gpus[0];
    assert!(
        failure(&gpu.nvlink_rx_bytes_per_s).contains("set of active NVLinks changed"),
        "and one that comes back brings no leap"
    );
    assert_eq!(sampler.sample(at(6)).gpus[0].nvlink_rx_bytes_per_s, Reading::Value(0));
    fake.set(&script(7000, 600, 1));
    let gpu = &sampler.sample(late(7, 10)).gpus[0];
    assert_eq!(
        gpu.nvlink_rx_bytes_per_s,
        Reading::Value(3 * 1000 * 1024),
        "over four seconds, though asked after one"
    );
    fake.set(&script(7000, 600, 4));
    assert_eq!(sampler.sample(at(11)).gpus[0].nvlink_rx_bytes_per_s, Reading::Unsupported);
}

#[test]
fn the_topology_is_that_of_nvidia_smi() {
    let rows = |sampler: &Sampler| -> Vec<String> {
        let topology = sampler.info().topology.unwrap();
        topology
            .paths
            .iter()
            .map(|row| row.iter().map(ToString::to_string).collect::<Vec<_>>().join(" "))
            .collect()
    };
    let gpu = |place: [u32; 3], links: u32, to: &[usize]| json!({ "place": place, "nvlinks": links, "nvlink_to": to });
    let bus = FakeNvml::new(&json!({ "gpus": [
        gpu([0, 0, 0], 0, &[]), gpu([0, 0, 0], 0, &[]), gpu([0, 0, 1], 0, &[]), gpu([0, 1, 2], 0, &[]),
        gpu([1, 2, 3], 0, &[]),
    ] }));
    let expected = [
        "X PIX PHB NODE SYS",
        "PIX X PHB NODE SYS",
        "PHB PHB X NODE SYS",
        "NODE NODE NODE X SYS",
        "SYS SYS SYS SYS X",
    ];
    assert_eq!(rows(&start(&bus)), expected);

    let mut switched = json!({ "gpus": [{}, {}, { "nvlinks_down": 2 }] });
    switched["gpus"][1]["cpus"] = json!([0, 0xff]);
    switched["gpus"][1]["place"] = json!([1, 0, 0]);
    let sampler = start(&FakeNvml::new(&switched));
    assert_eq!(
        rows(&sampler),
        ["X NV18 NV16", "NV18 X NV16", "NV16 NV16 X"],
        "as many as both have up to a switch"
    );
    let near = sampler.info().topology.unwrap().affinity;
    assert_eq!((near[0].cpus.as_deref(), near[0].numa_node), (Some("0-15"), Some(0)));
    assert_eq!((near[1].cpus.as_deref(), near[1].numa_node), (Some("64-71"), Some(1)));

    let pairs = FakeNvml::new(&json!({ "gpus": [
        gpu([0, 0, 0], 4, &[1, 1, 1, 1]), gpu([0, 0, 1], 4, &[0, 0, 0, 0]), { "nvlinks": 0, "place": [1, 0, 0], "lost": true },
    ] }));
    assert_eq!(rows(&start(&pairs)), ["X NV4 SYS", "NV4 X SYS", "? ? X"]);
}

#[test]
fn another_process_gets_its_gpus_by_its_environment() {
    let fake = FakeNvml::idle(3);
    if alone("telemetry::another_process_gets_its_gpus_by_its_environment", &fake.env()) {
        let library = std::env::var_os("HVTUI_NVML_LIB").unwrap();
        let sampler = Sampler::start(patient(PathBuf::from(library)), at(0));
        assert_eq!(sampler.info().gpus.len(), 3);
    }
}

#[test]
fn an_answer_that_is_late_by_a_little_is_shown() {
    let script = |hang: &[&str]| json!({ "hang": hang, "gpus": [{ "util": 5 }] });
    let fake = FakeNvml::new(&script(&[]));
    let config = SamplerConfig { start_deadline: Duration::from_secs(60), ..hasty(fake.own_library()) };
    let mut sampler = Sampler::start(config, at(0));
    fake.set(&script(&["nvmlDeviceGetTemperature"]));
    assert!(sampler.sample(at(1)).gpus[0].util.value().is_none());
    fake.set(&script(&[]));
    let sample = sample_until(&mut sampler, 2, |sample| sample.gpus[0].util.value().is_some());
    assert_eq!(sample.gpus[0].temperature, Reading::Value(34));
}

#[test]
fn nvml_that_hangs_from_the_start_is_an_absence_until_it_answers() {
    let fake = FakeNvml::new(&json!({ "hang": ["nvmlInit_v2"] }));
    let mut sampler = Sampler::start(hasty(fake.own_library()), at(0));
    let absence = sampler.info().gpu_absence.unwrap();
    assert_eq!(absence.reason, GpuAbsenceReason::Other);
    assert_eq!(absence.detail, "no answer from NVML since the agent started");
    let sample = sampler.sample(at(1));
    assert_eq!(sample.gpus, []);
    assert!(sample.memory_used.value().is_some());
    fake.set(&json!({ "gpus": [{ "util": 5 }] }));
    let sample = sample_until(&mut sampler, 2, |sample| {
        sample.gpus.first().is_some_and(|gpu| gpu.util == Reading::Value(5))
    });
    assert_eq!(sample.gpus.len(), 1);
    assert_eq!(sampler.info().gpu_absence, None);
}

/// A GPU whose every number is another one, so that no two can be mixed up.
fn every_number() -> Value {
    json!({
        "util": 97, "util_memory": 41, "encoder": 3, "decoder": 4, "fan": 55, "temperature": 71,
        "clock_sm_max_mhz": 1981, "clock_memory_max_mhz": 3202, "slowdown": 88, "shutdown": 93,
        "ecc_corrected": 12, "ecc_uncorrected": 2, "pages_retired": [5, 6], "pages_pending": true,
        "remap_pending": true, "remap_failed": true, "pcie_gen": 4, "pcie_width": 8,
        "pcie_rx_kib": 1000, "pcie_tx_kib": 2000, "nvlinks": 18, "nvlinks_down": 1, "nvlink_errors": [7, 8, 9],
        "energy_mj": 123_456_789_012_u64, "persistence": true, "gpm": [93.4, 41.6, 38.0],
    })
}

#[test]
fn every_number_comes_from_its_own_call() {
    let fake = FakeNvml::new(&json!({ "gpus": [every_number()] }));
    let mut sampler = start(&fake);
    let info = sampler.info().gpus[0].clone();
    assert_eq!(
        (&info.clock_sm_max_mhz, &info.clock_memory_max_mhz),
        (&Reading::Value(1981), &Reading::Value(3202))
    );
    assert_eq!((&info.slowdown_celsius, &info.shutdown_celsius), (&Reading::Value(88), &Reading::Value(93)));
    assert_eq!((&info.pcie_gen_max, &info.pcie_width_max), (&Reading::Value(5), &Reading::Value(16)));
    assert_eq!(info.ecc_enabled, Reading::Value(true));

    let first = sampler.sample(at(1)).gpus[0].clone();
    assert_eq!(
        failure(&first.sm_active_percent),
        "not read yet",
        "GPM tells of the time between two samples"
    );
    let gpu = &sampler.sample(at(2)).gpus[0];
    let told = [
        (&gpu.memory_util_percent, 41),
        (&gpu.encoder_percent, 3),
        (&gpu.decoder_percent, 4),
        (&gpu.sm_active_percent, 93),
        (&gpu.tensor_active_percent, 42),
        (&gpu.dram_active_percent, 38),
        (&gpu.fan_percent, 55),
        (&gpu.pcie_gen, 4),
        (&gpu.pcie_width, 8),
        (&gpu.nvlink_count, 18),
        (&gpu.nvlink_active, 17),
    ];
    for (at, (reading, expected)) in told.into_iter().enumerate() {
        assert_eq!(*reading, Reading::Value(expected), "the {at}th");
    }
    let told = [
        (&gpu.pcie_rx_bytes_per_s, 1000 << 10),
        (&gpu.pcie_tx_bytes_per_s, 2000 << 10),
        (&gpu.nvlink_errors, 24),
        (&gpu.ecc_corrected, 12),
        (&gpu.ecc_uncorrected, 2),
        (&gpu.pages_retired, 11),
        (&gpu.energy_mj, 123_456_789_012),
    ];
    for (at, (reading, expected)) in told.into_iter().enumerate() {
        assert_eq!(*reading, Reading::Value(expected), "the {at}th");
    }
    let yes = Reading::Value(true);
    assert_eq!(
        [&gpu.pages_pending, &gpu.row_remap_pending, &gpu.row_remap_failed, &gpu.persistence],
        [&yes; 4]
    );
    assert_eq!(gpu.mig, Reading::Value(false));
}

#[test]
fn what_a_gpu_lacks_is_neither_zero_nor_failure() {
    let errors = json!({
        "encoder": "not_supported", "decoder": "not_supported", "ecc": "not_supported", "fields": "function_not_found",
        "pcie_link": "not_supported", "pcie_throughput": "not_supported", "persistence": "not_supported",
        "clock_max": "not_supported", "threshold": "not_supported", "mig": "not_supported",
    });
    let lacking = json!({ "gpm": null, "errors": errors });
    let failing = json!({ "gpm": [1.0, 1.0, 1.0], "errors": {
        "gpm_sample": "no_permission", "fields": "unknown", "pcie_link": "gpu_is_lost",
    } });
    let fake = FakeNvml::new(&json!({ "gpus": [lacking, failing, { "mig": true }] }));
    let mut sampler = start(&fake);
    let info = &sampler.info().gpus[0];
    assert_eq!(
        (&info.clock_sm_max_mhz, &info.slowdown_celsius),
        (&Reading::Unsupported, &Reading::Unsupported)
    );
    assert_eq!((&info.pcie_gen_max, &info.ecc_enabled), (&Reading::Unsupported, &Reading::Unsupported));
    sampler.sample(at(1));
    let sample = sampler.sample(at(2));
    let gpu = &sample.gpus[0];
    let lacks =
        [&gpu.encoder_percent, &gpu.decoder_percent, &gpu.fan_percent, &gpu.pcie_gen, &gpu.pcie_width];
    assert_eq!(lacks, [&Reading::Unsupported; 5]);
    assert_eq!((&gpu.sm_active_percent, &gpu.nvlink_active), (&Reading::Unsupported, &Reading::Unsupported));
    let lacks = [&gpu.pcie_rx_bytes_per_s, &gpu.pcie_tx_bytes_per_s, &gpu.ecc_corrected, &gpu.nvlink_errors];
    assert_eq!(lacks, [&Reading::Unsupported; 4]);
    assert_eq!((&gpu.energy_mj, &gpu.pages_retired), (&Reading::Unsupported, &Reading::Unsupported));
    assert_eq!([&gpu.persistence, &gpu.row_remap_pending, &gpu.mig], [&Reading::Unsupported; 3]);
    let gpu = &sample.gpus[1];
    assert!(failure(&gpu.sm_active_percent).contains("permission"));
    assert!(
        failure(&gpu.ecc_uncorrected).contains("unknown")
            || failure(&gpu.ecc_uncorrected).contains("internal")
    );
    assert!(failure(&gpu.pcie_gen).contains("fell off the bus"));
    let gpu = &sample.gpus[2];
    assert_eq!((&gpu.mig, &gpu.sm_active_percent), (&Reading::Value(true), &Reading::Unsupported));
}

/// Names of the calls about GPU 0 since the last time, with how often each was made.
fn calls(path: &std::path::Path) -> std::collections::BTreeMap<String, usize> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    std::fs::write(path, "").unwrap();
    let mut calls = std::collections::BTreeMap::new();
    for name in text.lines().filter_map(|line| line.strip_suffix(":0")) {
        *calls.entry(name.to_owned()).or_default() += 1;
    }
    calls
}

#[test]
fn what_is_slow_is_asked_rarely_and_what_is_fixed_once() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("calls");
    let fake = FakeNvml::new(&json!({ "calls": log, "gpus": [{}, {}] }));
    let mut sampler = start(&fake);
    let start = calls(&log);
    for name in [
        "nvmlDeviceGetMaxClockInfo",
        "nvmlDeviceGetTemperatureThreshold",
        "nvmlDeviceGetEccMode",
        "nvmlDeviceGetNvLinkRemoteDeviceType",
        "nvmlDeviceGetCpuAffinity",
    ] {
        assert!(start.contains_key(name), "{name}: {start:?}");
    }
    let made: Vec<_> = (1..=20)
        .map(|second| {
            sampler.sample(at(second));
            calls(&log)
        })
        .collect();
    for name in start.keys().filter(|name| {
        ["Max", "Threshold", "Topology", "Affinity", "Remote"].iter().any(|part| name.contains(part))
    }) {
        assert!(made.iter().all(|calls| !calls.contains_key(name)), "{name} is asked again");
    }
    for name in ["nvmlDeviceGetPcieThroughput", "nvmlDeviceGetPersistenceMode", "nvmlDeviceGetNvLinkState"] {
        let when: Vec<usize> = (0..20).filter(|second| made[*second].contains_key(name)).collect();
        assert_eq!(when, [0, 10], "{name}");
    }
    let fan = made.iter().filter(|calls| calls.contains_key("nvmlDeviceGetFanSpeed_v2")).count();
    assert_eq!(fan, 1, "a board without a fan is not asked for it again");
    let cost = |calls: &std::collections::BTreeMap<String, usize>| calls.values().sum::<usize>();
    eprintln!("calls a GPU: {} in a sample, {} in each tenth", cost(&made[5]), cost(&made[10]));
    assert!(cost(&made[5]) <= 18, "{:?}", made[5]);
    assert!(cost(&made[10]) <= 18 + 22, "{:?}", made[10]);
}

/// The events that a sampler tells from a thread of its own, as `index: words ×count`.
fn heard(sampler: &Sampler) -> std::sync::mpsc::Receiver<String> {
    let (told, events) = std::sync::mpsc::channel();
    let source = sampler.events();
    std::thread::spawn(move || {
        source(&mut |events| {
            events.iter().all(|event| {
                assert_eq!(event.uuid.as_str(), format!("GPU-00000000-0000-4000-8000-{:012}", event.index));
                told.send(format!("{}: {} ×{}", event.index, event.what.short(), event.count)).is_ok()
            })
        });
    });
    events
}

fn next(events: &std::sync::mpsc::Receiver<String>) -> String {
    events.recv_timeout(Duration::from_secs(60)).unwrap()
}

#[test]
fn what_happens_to_a_gpu_is_told_as_it_comes() {
    let script = |events: Value| json!({ "events": events, "gpus": [{}, {}, { "errors": { "events": "not_supported" } }, {}] });
    let fake = FakeNvml::new(&script(json!([])));
    let sampler = start(&fake);
    let events = heard(&sampler);
    let mut all = vec![json!({ "gpu": 1, "what": { "xid": 79 } })];
    fake.set(&script(json!(all)));
    assert_eq!(next(&events), "1: xid 79 ×1");
    // At once: merged by GPU and kind. One of them is of a GPU that tells no events.
    for what in [
        json!({ "xid": 31 }),
        json!({ "xid": 31 }),
        json!("single_bit_ecc"),
        json!({ "xid": 31 }),
        json!("double_bit_ecc"),
    ] {
        all.push(json!({ "gpu": 0, "what": what }));
        all.push(json!({ "gpu": 2, "what": { "xid": 13 } }));
    }
    all.push(json!({ "gpu": 3, "what": { "xid": 5_000_000_000_u64 } }));
    fake.set(&script(json!(all)));
    let told: Vec<String> = (0..4).map(|_| next(&events)).collect();
    assert_eq!(told, ["0: xid 31 ×3", "0: ecc corrected ×1", "0: ecc error ×1", "3: xid 999 ×1"]);
}

#[test]
fn a_lost_gpu_takes_no_events_of_the_others_with_it() {
    let script = |lost: bool, events: Value| json!({ "events": events, "gpus": [{}, { "lost": lost }] });
    let fake = FakeNvml::new(&script(false, json!([])));
    let sampler = start(&fake);
    let events = heard(&sampler);
    let mut all = vec![json!({ "gpu": 0, "what": { "xid": 1 } })];
    fake.set(&script(false, json!(all)));
    assert_eq!(next(&events), "0: xid 1 ×1");
    fake.set(&script(true, json!(all)));
    all.push(json!({ "gpu": 0, "what": { "xid": 2 } }));
    fake.set(&script(true, json!(all)));
    assert_eq!(next(&events), "0: xid 2 ×1");
}
