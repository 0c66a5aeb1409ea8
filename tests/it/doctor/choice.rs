//! What Gloo and Open MPI take where nothing names an interface to them: told by the doctor, and seen in the real libraries.

use std::path::Path;
use std::process::Command;

use super::{json, verdict};
use crate::common::client::Client;
use crate::common::cluster::{Cluster, skip};
use crate::common::in_time::StatusInTime;

fn is_missing(cluster: &Cluster) -> bool {
    let has_torch = cluster.on("n1", "/usr/bin/python3 -c 'import torch' && echo yes || true") == "yes\n";
    if !has_torch || !Path::new("/usr/bin/mpicc.openmpi").exists() {
        skip(
            "no torch of /usr/bin/python3, or no Open MPI: apt-get install python3-torch openmpi-bin libopenmpi-dev",
        );
        return true;
    }
    false
}

/// Two ranks of torch by Gloo with these variables, started by hand: whether they reduce.
fn gloo_reduces(cluster: &Cluster, variables: &str) -> bool {
    let code = "import datetime, sys, torch; import torch.distributed as d\n\
                d.init_process_group(\"gloo\", rank=int(sys.argv[1]), world_size=2, init_method=\"tcp://10.77.0.11:29777\", \
                timeout=datetime.timedelta(seconds=8))\n\
                t = torch.ones(1); d.all_reduce(t); assert t.item() == 2\n";
    std::fs::write(cluster.dir().join("gloo.py"), code).expect("a script");
    let script = cluster.dir().join("gloo.py").display().to_string();
    let rank = |number: u32| format!("{variables} timeout 30 /usr/bin/python3 {script} {number}");
    cluster.on("n2", &format!("({}; echo $? > ~/code) >/dev/null 2>&1 &", rank(1)));
    cluster.on("n1", &format!("{} >/dev/null 2>&1 && echo yes || true", rank(0))) == "yes\n"
}

/// Two ranks of mpirun, started by hand: whether they reduce within some seconds.
fn mpi_reduces(cluster: &Cluster) -> bool {
    let source = "#include <mpi.h>\nint main(int c, char **v) { int r, s = 0; MPI_Init(&c, &v); MPI_Comm_rank(MPI_COMM_WORLD, &r); \
                  MPI_Allreduce(&r, &s, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD); MPI_Finalize(); return s != 1; }\n";
    let (file, program) = (cluster.dir().join("sum.c"), cluster.dir().join("sum"));
    std::fs::write(&file, source).expect("a source");
    let mut compile = Command::new("/usr/bin/mpicc.openmpi");
    assert!(compile.arg("-o").arg(&program).arg(&file).status_in_time().expect("mpicc").success());
    let line = format!(
        "OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 timeout 10 /usr/bin/mpirun.openmpi -np 2 -H n1:1,n2:1 --mca pml ob1 \
         --mca btl self,tcp {} >/dev/null 2>&1 && echo yes || true",
        program.display()
    );
    cluster.on("n1", &line) == "yes\n"
}

#[test]
fn what_libraries_take_by_themselves_is_told_before_it_leads_nowhere() {
    let Some(cluster) = Cluster::ready(2, &[]) else { return };
    if is_missing(&cluster) {
        return;
    }
    let client = Client::new(&cluster);
    let look = || json(&client.run(&["doctor", "--json", "--only", "choice"]));
    let before = look();
    for (host, address) in [("n1", "10.77.0.11"), ("n2", "10.77.0.12")] {
        let one = verdict(&before, "choice", host);
        let words =
            format!("Gloo takes eth0 {address}, as {host} is called there; Open MPI takes eth0 {address}");
        assert_eq!((&one["mark"], &one["evidence"]), (&"good".into(), &words.into()), "{before:#}");
    }
    assert!(gloo_reduces(&cluster, ""), "as it is told to be well");
    // Debian's line for a host's own name
    for host in ["n1", "n2"] {
        cluster.on(
            host,
            &format!(
                "printf '127.0.0.1 localhost\\n127.0.1.1 {host}\\n10.77.0.11 m1\\n10.77.0.12 m2\\n' > ~/hosts"
            ),
        );
        cluster.on(host, "cp /etc/hosts ~/hosts.before && mount --bind ~/hosts /etc/hosts");
    }
    let told = look();
    let gloo = verdict(&told, "choice", "n2");
    let words = "Gloo takes 127.0.1.1, as n2 is called there: no other host reaches it";
    assert_eq!((&gloo["mark"], &gloo["evidence"]), (&"look".into(), &words.into()), "{told:#}");
    assert!(gloo["remedy"].as_str().unwrap().contains("GLOO_SOCKET_IFNAME=eth0"), "{gloo:#}");
    assert!(!gloo_reduces(&cluster, ""), "as it is told");
    assert!(gloo_reduces(&cluster, "GLOO_SOCKET_IFNAME=eth0"), "by what helps");
    for host in ["n1", "n2"] {
        cluster.on(host, "umount /etc/hosts");
    }

    // docker's bridge on both, without a container and so without a carrier
    assert_eq!(client.run(&["hosts", "mesh", "--yes"]).code, 0);
    assert!(mpi_reduces(&cluster), "without it");
    for host in ["n1", "n2"] {
        cluster.on(
            host,
            "ip link add docker0 type bridge; ip addr add 172.17.0.1/16 dev docker0; ip link set docker0 up",
        );
        cluster.on(host, "ip link add v0 type veth peer name v1; ip link set v0 master docker0; ip link set v0 up; ip link set v1 up; ip link del v0");
    }
    let told = look();
    let mpi = verdict(&told, "choice", "n1");
    let words = "Open MPI takes eth0 10.77.0.11, docker0 172.17.0.1: n2 has 172.17.0.1, too, and reaches itself by it";
    assert_eq!((&mpi["mark"], &mpi["evidence"]), (&"look".into(), &words.into()), "{told:#}");
    assert!(!mpi_reduces(&cluster), "as it is told");
    for host in ["n1", "n2"] {
        let fix = verdict(&told, "choice", host)["fix"]["command"].as_str().expect("a command").to_owned();
        cluster.on(host, &fix);
    }
    assert!(mpi_reduces(&cluster), "by what helps");
    let after = look();
    let one = verdict(&after, "choice", "n1");
    assert_eq!(
        (&one["mark"], one["evidence"].as_str().unwrap().contains("Open MPI")),
        (&"good".into(), false),
        "{after:#}"
    );
    // and the runs that hvtui starts by mpirun name their own network all the same
    let program = cluster.dir().join("sum").display().to_string();
    let run = client.run(&["run", "-H", "n1:1,n2:1", "--kind", "mpi", "--", &program]);
    assert_eq!(run.code, 0, "{run:?}");
}
