//! `hvtui doctor --image` with a real docker daemon on each of two real ssh hosts: a container of the image is looked into from inside.
//! NVIDIA's runtime is a stand-in that gives nothing; the image brings an `nvidia-smi` of its own.

use std::ffi::OsStr;
use std::path::Path;
use std::process::Stdio;

use serde_json::Value;

use super::{json, verdict};
use crate::common::built;
use crate::common::client::{Client, Ended};
use crate::common::cluster::Cluster;
use crate::common::docker::{IMAGE, up};
use crate::common::in_time::{OutputInTime, StatusInTime};
use crate::common::processes::{until, wait_for};

const UUID: &str = "GPU-00000000-0000-0000-0000-000000000001";

/// Makes an image on a host: the base with these files in it, each its path and its text, and these words of a Dockerfile.
fn image(cluster: &Cluster, host: &str, name: &str, files: &[(&str, &str)], changes: &[&str]) {
    let root = cluster.dir().join("rootfs");
    for (path, text) in files {
        let file = root.join(path);
        std::fs::create_dir_all(file.parent().expect("a folder")).expect("a folder");
        std::fs::write(&file, text).expect("a file");
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(&file, mode).expect("its mode");
    }
    let changes: Vec<String> = changes.iter().map(|change| format!("--change '{change}'")).collect();
    let line = format!("tar -C {} -c . | docker import {} - {name}", root.display(), changes.join(" "));
    assert!(cluster.on(host, &format!("{line} >/dev/null && echo done")).ends_with("done\n"), "{name}");
    for (path, _) in files {
        std::fs::remove_file(root.join(path)).expect("it is of that image alone");
    }
}

fn containers(cluster: &Cluster, host: &str) -> String {
    cluster.on(host, "docker ps --all --quiet --filter label=hvtui.look")
}

#[test]
fn an_image_is_looked_into_on_each_host_and_its_faults_are_told() {
    let scripts = tempfile::tempdir().unwrap();
    let script = serde_json::json!({ "gpus": [{ "uuid": UUID }], "cuda": 12020, "driver": "535.104.05" });
    std::fs::write(scripts.path().join("n1.json"), script.to_string()).unwrap();
    let nvml = built::example("libfake_nvml.so");
    let fake: [&OsStr; 3] = ["--fake-nvml".as_ref(), nvml.as_ref(), scripts.path().as_ref()];
    let Some(cluster) = up(2, &fake) else { return };
    let client = Client::new(&cluster);
    client.write("hosts.toml", &cluster.hosts_toml(1).replace("slots = 1\n", ""));
    let look = |image: &str, more: &[&str]| {
        let told = json(&client.run(&[&["doctor", "--json", "--image", image], more].concat()));
        for host in ["n1", "n2"] {
            assert_eq!(containers(&cluster, host), "", "{host}: none is left");
        }
        told
    };
    let of = |told: &Value, check: &str, host: &str| {
        let one = verdict(told, check, host);
        let text = |name: &str| one[name].as_str().unwrap_or_default().to_owned();
        (text("mark"), text("evidence"), text("remedy"))
    };

    // an image that is on one host alone; what it has is what is told, and not what the host has
    let plain = look(IMAGE, &[]);
    let (mark, absent, remedy) = of(&plain, "image", "n2");
    assert_eq!((mark.as_str(), absent.as_str()), ("bad", "no image hvtui-test:base for docker"), "{plain:#}");
    assert!(remedy.contains("hvtui image push hvtui-test:base"), "{remedy}");
    assert_eq!(of(&plain, "python", "n2").0, "unknown", "{plain:#}");
    let (mark, seen, _) = of(&plain, "image", "n1");
    assert!(
        mark == "good" && seen.contains("no answer of nvidia-smi") && seen.ends_with("python3"),
        "{seen}"
    );
    assert_eq!(of(&plain, "torch", "n1").1, "no torch", "the host's own torch is not the image's");
    for check in ["shm", "python", "limits", "tmp"] {
        assert_eq!(of(&plain, check, "n1").0, "good", "{check}: {plain:#}");
    }
    // the runtime gave it the GPU without the driver's library
    let (mark, seen, remedy) = of(&plain, "cuda", "n1");
    assert_eq!(
        (mark.as_str(), seen.as_str()),
        ("bad", "NVML sees GPUs, and there is no libcuda.so.1"),
        "{plain:#}"
    );
    assert!(remedy.contains("NVIDIA_DRIVER_CAPABILITIES=compute,utility"), "{remedy}");
    let checks = plain["checks"].as_array().unwrap();
    assert!(checks.iter().all(|row| row["check"] != "kernel"), "what is the host's own is not told");
    let usage = client.run(&["doctor", "--image", IMAGE, "--only", "kernel"]);
    assert!(usage.code == 64 && usage.err.contains("a look into an image has "), "{usage:?}");
    assert_eq!(client.run(&["doctor", "--only", "image"]).code, 64, "of which image");

    faults(&cluster, look, of);
    // a launch is kept from starting by what its container would not have
    let launches = Launches { cluster: &cluster, client };
    let lacks = "a container does not have GPU-";
    let kept = launches.tells("train:1", &["-H", "n1:1", "--", "python3", "-c", "pass"], lacks);
    assert_eq!(kept.code, 78, "{kept:?}");
    assert_eq!(containers(&cluster, "n1"), "");
    let client = launches.client;

    // one whose entry point hangs: told in time, and its container goes
    let hangs = ["ENTRYPOINT [\"/usr/bin/sleep\",\"1000\"]"];
    image(&cluster, "n1", "hangs:1", &[], &hangs);
    image(&cluster, "n1", "hangs:2", &[("hang", "#!/bin/sh\nsleep 1000\n")], &["ENTRYPOINT [\"/hang\"]"]);
    let told = json(&client.run(&["doctor", "--json", "--image", "hangs:2", "-H", "n1"]));
    let (mark, seen, _) = of(&told, "image", "n1");
    assert!(mark == "bad" && seen.contains("no answer in 20 s"), "{told:#}");
    assert_eq!(containers(&cluster, "n1"), "");
    // one that takes what it is given for its own arguments is looked into all the same
    assert_eq!(
        of(&json(&client.run(&["doctor", "--json", "--image", "hangs:1", "-H", "n1"])), "image", "n1").0,
        "good"
    );
}

/// Of an image with a fault in everything that is looked at.
fn faults(
    cluster: &Cluster,
    look: impl Fn(&str, &[&str]) -> Value,
    of: impl Fn(&Value, &str, &str) -> (String, String, String),
) {
    let version = std::process::Command::new("/usr/bin/python3")
        .args(["-c", "import sys; print('python%d.%d' % sys.version_info[:2])"])
        .output_in_time()
        .expect("Python");
    let version = String::from_utf8_lossy(&version.stdout).trim().to_owned();
    let packages = format!("usr/lib/{version}");
    let torch = format!("{packages}/torch/version.py");
    let init = format!("{packages}/torch/__init__.py");
    let meta = format!("{packages}/torch-2.4.0.dist-info/METADATA");
    let smi = "#!/bin/sh\necho 'GPU 0: NVIDIA H200 (UUID: GPU-other)'\n";
    let files = [
        ("usr/bin/nvidia-smi", smi),
        (torch.as_str(), "__version__ = '2.4.0'\ncuda = '13.0'\n"),
        (init.as_str(), "import no_such_package\n"),
        (meta.as_str(), "Metadata-Version: 2.1\nName: torch\nVersion: 2.4.0\n"),
        ("usr/local/cuda/lib64/stubs/libcuda.so.1", ""),
        ("usr/bin/mpirun", "#!/bin/sh\necho 'mpirun (Open MPI) 4.1.4'\n"),
    ];
    let changes = [
        "ENV LD_LIBRARY_PATH=/usr/local/cuda/lib64/stubs",
        "ENV OMPI_MCA_plm_rsh_agent=/bin/false",
        "ENV NVIDIA_REQUIRE_CUDA=cuda>=12.4",
    ];
    image(cluster, "n1", "train:1", &files, &changes);
    image(cluster, "n2", "train:1", &files[..3], &[]);
    let told = look("train:1", &[]);
    for (check, host, evidence, remedy) in [
        (
            "docker",
            "n1",
            "the image is for CUDA 12.4 and later; the driver serves 12.2 at most",
            "install a newer driver",
        ),
        (
            "stub",
            "n1",
            "/usr/local/cuda/lib64/stubs/libcuda.so.1, named by LD_LIBRARY_PATH",
            "in the image: take the stubs",
        ),
        (
            "torch",
            "n1",
            "torch 2.4.0 for CUDA 13.0; the driver serves CUDA 12.2",
            "install a newer driver, or torch",
        ),
        ("mpi", "n1", "OMPI_MCA_plm_rsh_agent=/bin/false", "in the image: unset"),
        ("image", "n1", "the image is ", "hvtui image push"),
    ] {
        let (mark, seen, helps) = of(&told, check, host);
        assert!(mark == "bad" && seen.starts_with(evidence) && helps.contains(remedy), "{check}: {told:#}");
        assert_eq!(
            verdict(&told, check, host)["fix"],
            Value::Null,
            "{check}: nothing is run on the host for it"
        );
    }
    // a package whose own files are damaged does not hide the others
    assert!(of(&told, "torch", "n2").1.starts_with("torch 2.4.0"), "{told:#}");
    let imports = look("train:1", &["--only", "image,import", "-H", "n1"]);
    let (mark, seen, _) = of(&imports, "import", "n1");
    assert!(mark == "bad" && seen.contains("No module named 'no_such_package'"), "{imports:#}");
    let (mark, seen, _) = of(&imports, "image", "n1");
    let words = format!("a container does not have {UUID} that it was given");
    assert_eq!((mark.as_str(), seen), ("bad", words), "{imports:#}");
    // and one that is as it should be, with the driver's library as NVIDIA's runtime gives it
    let source = cluster.dir().join("cuda.c");
    std::fs::write(&source, "int cuInit(unsigned flags) { return flags ? 1 : 0; }\n").expect("a source");
    let mut compile = std::process::Command::new("gcc");
    compile.args(["-shared", "-fPIC", "-o"]).arg(cluster.dir().join("rootfs/usr/lib/libcuda.so.1"));
    assert!(compile.arg(&source).status_in_time().expect("gcc").success());
    let smi = format!("#!/bin/sh\necho 'GPU 0: NVIDIA H200 (UUID: {UUID})'\n");
    image(cluster, "n1", "good:1", &[("usr/bin/nvidia-smi", &smi)], &[]);
    let good = look("good:1", &["-H", "n1"]);
    let (mark, seen, _) = of(&good, "image", "n1");
    assert!(mark == "good" && seen.contains(", 1 GPU, python3"), "{good:#}");
    assert_eq!(good["red"], 0, "{good:#}");
}

#[test]
fn a_container_that_a_killed_agent_has_left_goes_with_the_next_look() {
    let Some(cluster) = up(1, &[]) else { return };
    let client = Client::new(&cluster);
    let left = "docker run -d --name hvtui-look-1-0 --label hvtui.look=\"$(id -u) 4194999\"";
    cluster.on("n1", &format!("{left} --entrypoint sleep {IMAGE} 1000"));
    until("it", || !containers(&cluster, "n1").is_empty());
    assert!(Path::new("/proc/4194999").metadata().is_err(), "no process has that number");
    let told = json(&client.run(&["doctor", "--json", "--image", IMAGE, "--only", "image"]));
    assert_eq!(verdict(&told, "image", "n1")["mark"], "good", "{told:#}");
    assert_eq!(containers(&cluster, "n1"), "");
}

#[test]
fn a_container_that_hangs_goes_although_its_client_and_agent_have_ended() {
    let Some(cluster) = up(1, &[]) else { return };
    let client = Client::new(&cluster);
    let waits = "#!/bin/sh\nsleep 1000\n";
    image(&cluster, "n1", "hangs:1", &[("wait", waits)], &["ENTRYPOINT [\"/wait\"]"]);
    let mut launch = client.hvtui(&["run", "-np", "1", "--image", "hangs:1", "--", "python3", "-c", "pass"]);
    let mut launch = launch.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    until("a container", || !containers(&cluster, "n1").is_empty());
    launch.kill().unwrap();
    launch.wait().unwrap();
    until("its end", || containers(&cluster, "n1").is_empty());
}

/// A host whose launches run in an image, and how often a container was looked into.
struct Launches<'c> {
    cluster: &'c Cluster,
    client: Client<'c>,
}

impl<'c> Launches<'c> {
    fn on(cluster: &'c Cluster) -> Self {
        Self { cluster, client: Client::new(cluster) }
    }

    fn run(&self, image: &str, more: &[&str]) -> Ended {
        self.client.run(&[&["run", "-np", "1", "--image", image], more].concat())
    }

    /// Runs it until it says so: a look that has no answer in time keeps no launch, and on a busy machine any may have none. That one is
    /// forgotten; whether what it says is remembered is seen by the launches that follow.
    fn tells(&self, image: &str, more: &[&str], words: &str) -> Ended {
        wait_for(&format!("{more:?} to say: {words}"), || {
            let ended = self.run(image, more);
            let is_told = format!("{}{}", ended.out, ended.err).contains(words);
            if !is_told {
                self.cluster.on("n1", "rm -rf ~/.local/state/hvtui/inside");
            }
            is_told.then_some(ended)
        })
    }

    fn now(&self) -> String {
        self.cluster.on("n1", "date +%s.%N").trim().to_owned()
    }

    /// How often since then: an engine forgets what was long before.
    fn looks(&self, since: &str) -> usize {
        until("that none is left", || containers(self.cluster, "n1").is_empty());
        let filters = "--filter event=create --filter label=hvtui.look --format x";
        let line = format!("docker events --since {since} --until $(date +%s.%N) {filters}");
        self.cluster.on("n1", &line).lines().count()
    }

    /// Runs it twice, with so many looks for both at most: there is none where no time is left for it.
    fn runs_with_looks(&self, most: usize, image: &str, more: &[&str]) {
        let since = self.now();
        for _ in 0..2 {
            let ran = self.run(image, more);
            assert!(ran.code == 0 && ran.out.contains("ran"), "{more:?}: {ran:?}");
        }
        let looks = self.looks(&since);
        assert!(looks <= most, "{more:?}: {looks}");
    }

    fn is_kept(&self, image: &str, more: &[&str], words: &str) {
        let kept = self.tells(image, more, &format!("image      n1: {words}"));
        assert_eq!(kept.code, 78, "{more:?}: {kept:?}");
    }
}

const TORCH: [&str; 6] = ["--kind", "torch", "--", "python3", "-c", "import torch; print('ran')"];
const NO_TORCH: &str = "a container of hvtui-test:base has no module torch for /usr/bin/python3";

#[test]
fn a_launch_is_told_what_its_image_lacks_and_looks_into_one_image_once() {
    let Some(cluster) = up(1, &[]) else { return };
    let launches = Launches::on(&cluster);
    // the host's own torch is not the image's
    let since = launches.now();
    launches.is_kept(IMAGE, &TORCH, NO_TORCH);
    assert!(launches.looks(&since) > 0);
    let forced = [&["--force"], &TORCH[..]].concat();
    let forced = launches.tells(IMAGE, &forced, &format!("--force ignores image of n1: {NO_TORCH}"));
    assert!(forced.code != 78 && forced.err.contains("No module named 'torch'"), "{forced:?}");
    launches.tells(IMAGE, &[&["--dry-run"], &TORCH[..]].concat(), NO_TORCH);
    launches.is_kept(
        IMAGE,
        &["--", "python3.99", "-c", "pass"],
        "a container of hvtui-test:base has no python3.99",
    );
    // what is well is remembered, for the same image
    launches.runs_with_looks(1, IMAGE, &["--", "python3", "-c", "print('ran')"]);
    let init = [("usr/lib/python3/dist-packages/torch/__init__.py", "")];
    image(&cluster, "n1", IMAGE, &init, &[]);
    launches.runs_with_looks(1, IMAGE, &TORCH);
    launches.runs_with_looks(1, IMAGE, &["--", "python3", "-c", "print('ran')"]);
    // an image that needs nothing that is known is not looked into
    launches.runs_with_looks(0, IMAGE, &["--", "echo", "ran"]);
}

#[test]
fn a_launch_that_would_work_is_kept_by_no_look_into_its_image() {
    let Some(cluster) = up(1, &[]) else { return };
    let launches = Launches::on(&cluster);
    // the kind says nothing of what the script imports
    launches.runs_with_looks(1, IMAGE, &["--kind", "horovod", "--", "python3", "-c", "print('ran')"]);
    let tries = "try:\n    import torch\nexcept ImportError:\n    print('ran')";
    launches.runs_with_looks(1, IMAGE, &["--kind", "torch", "--", "python3", "-c", tries]);
    // a volume brings the module, a folder of the script's has it, or the script leads to it
    cluster.on("n1", "mkdir -p ~/packages/torch ~/code && touch ~/packages/torch/__init__.py");
    cluster.on("n1", "printf 'import torch\\nprint(\"ran\")\\n' > ~/code/train.py");
    let packages = ["-v", "~/packages/torch:/usr/lib/python3/dist-packages/torch"];
    launches.runs_with_looks(1, IMAGE, &[&packages, &TORCH[..]].concat());
    let script = ["-v", "~/code:/code", "--kind", "torch", "--", "python3", "/code/train.py"];
    launches.is_kept(IMAGE, &script, NO_TORCH);
    let here = ["--workdir", "~/code", "--kind", "torch", "--", "python3", "train.py"];
    launches.is_kept(IMAGE, &here, NO_TORCH);
    launches.is_kept(
        IMAGE,
        &["--workdir", "~/code", "--kind", "torch", "--", "python3", "-m", "train"],
        NO_TORCH,
    );
    cluster.on("n1", "touch ~/code/torch.py");
    launches.runs_with_looks(1, IMAGE, &script);
    launches.runs_with_looks(1, IMAGE, &here);
    cluster.on(
        "n1",
        "mkdir ~/led && sed '1i import sys; sys.path.append(\"/packages\")' ~/code/train.py > ~/led/train.py",
    );
    let led = [
        "-v",
        "~/led:/code",
        "-v",
        "~/packages:/packages",
        "--kind",
        "torch",
        "--",
        "python3",
        "/code/train.py",
    ];
    launches.runs_with_looks(1, IMAGE, &led);
    // variables lead elsewhere, so that its program and modules are not looked for
    let variable = ["-v", "~/packages:/packages", "--env", "PYTHONPATH=/packages"];
    launches.runs_with_looks(0, IMAGE, &[&variable, &TORCH[..]].concat());
    // an entry point that activates something, one that swallows what it is given, and another one
    let enter = "#!/bin/sh\nexport PYTHONPATH=/own\nexec \"$@\"\n";
    let files = [("enter", enter), ("own/torch.py", "")];
    image(&cluster, "n1", "enters:1", &files, &["ENTRYPOINT [\"/enter\"]"]);
    launches.runs_with_looks(1, "enters:1", &TORCH);
    // one that goes by a variable of the run, which another run does not have
    let enter = "#!/bin/sh\n[ \"$PROFILE\" = own ] && export PYTHONPATH=/own\nexec \"$@\"\n";
    let files = [("enter", enter), ("own/torch.py", "")];
    image(&cluster, "n1", "profiles:1", &files, &["ENTRYPOINT [\"/enter\"]"]);
    launches.runs_with_looks(1, "profiles:1", &[&["--env", "PROFILE=own"], &TORCH[..]].concat());
    launches.is_kept("profiles:1", &TORCH, "a container of profiles:1 has no module torch");
    let swallows = [("swallow", "#!/bin/sh\necho ran\n")];
    image(&cluster, "n1", "swallows:1", &swallows, &["ENTRYPOINT [\"/swallow\"]"]);
    launches.runs_with_looks(1, "swallows:1", &TORCH);
    let waits = "#!/bin/sh\ncase $1 in /.hvtui/*) sleep 1000;; esac\nexec \"$@\"\n";
    image(&cluster, "n1", "waits:1", &[("wait", waits)], &["ENTRYPOINT [\"/wait\"]"]);
    launches.runs_with_looks(1, "waits:1", &["--", "python3", "-c", "print('ran')"]);
    let entry = "--container-arg=--entrypoint=/usr/bin/env";
    launches.runs_with_looks(1, "swallows:1", &[entry, "--", "python3", "-c", "print('ran')"]);
    // an image without a shell has what is started
    let root = cluster.dir().join("rootfs");
    let without = |files: &str, name: &str| {
        let files = format!(" {files}").replace(' ', " --exclude=./usr/bin/");
        let line =
            format!("tar -C {}{files} -c . | docker import - {name} >/dev/null && echo done", root.display());
        assert!(cluster.on("n1", &line).ends_with("done\n"), "{name}");
    };
    without("sh dash bash env", "bare:1");
    launches.runs_with_looks(1, "bare:1", &["--", "python3", "-c", "print('ran')"]);
    // but not where its entry point is one: no rank would start
    let line = "printf 'FROM bare:1\\nENTRYPOINT [\"/bin/sh\", \"-c\"]\\n' > ~/Dockerfile && docker build -q -t shell:1 -f ~/Dockerfile ~/go && echo done";
    assert!(cluster.on("n1", line).ends_with("done\n"));
    let command = ["--", "python3", "-c", "print('ran')"];
    launches.is_kept("shell:1", &command, "docker starts no container of it: ");
    without("python3", "none:1");
    launches.is_kept("none:1", &["--", "python3", "-c", "pass"], "a container of none:1 has no python3");
}
