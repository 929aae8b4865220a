//! Several processes on one simulated GPU: order, manners, and ends of both sides.

use crate::common::serve;
use everwarm_gpu::wire::{self, Reply, Request};
use everwarm_gpu::{Backend, Completion, Error, Monotonic, Queue};
use everwarm_sim_server::{Config, Handle, spawn};
use everwarm_units::Span;
use everwarm_workload::{Kernel, Runtime};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;

fn open(server: &Handle) -> (Box<dyn Backend>, Queue) {
    let mut gpu = everwarm_gpu::open(&server.device()).unwrap();
    let queue = gpu.queue().unwrap();
    (gpu, queue)
}

fn full(gpu: &dyn Backend, span: Span) -> Kernel {
    gpu.device().fma(span, Kernel::FMA_THREADS)
}

fn land(gpu: &mut dyn Backend, n: usize) -> Vec<Completion> {
    let deadline = gpu.now() + Span::s(20);
    (0..n).map(|_| gpu.wait(deadline).unwrap().expect("it ends within 20 s")).collect()
}

/// A raw connection that has said hello.
fn greeted(server: &Handle) -> UnixStream {
    let mut stream = UnixStream::connect(server.socket()).unwrap();
    let hello = Request::Hello {
        protocol: wire::PROTOCOL.into(),
        version: wire::VERSION,
        client: "a test".into(),
    };
    stream.write_all(&wire::line(&hello)).unwrap();
    let mut line = String::new();
    BufReader::new(stream.try_clone().unwrap()).read_line(&mut line).unwrap();
    assert!(matches!(wire::parse(line.as_bytes()), Ok(Reply::Hello { .. })), "{line}");
    stream
}

#[test]
fn clients_share_the_gpu_in_turns_and_on_one_clock() {
    let (server, _folder) = serve("mlx");
    let ((mut a, a_queue), (mut b, b_queue)) = (open(&server), open(&server));
    let kernel = full(a.as_ref(), Span::ms(20));
    for _ in 0..6 {
        a.commit(a_queue, &kernel).unwrap();
        b.commit(b_queue, &kernel).unwrap();
    }
    let on_one_clock = |gpu: &mut dyn Backend, who: &'static str| {
        let epoch = gpu.epoch().expect("a wall clock");
        let landed = land(gpu, 6);
        assert!(landed.windows(2).all(|pair| pair[0].ticket < pair[1].ticket));
        let spans =
            landed.into_iter().map(move |c| (epoch.at(c.gpu_start), epoch.at(c.gpu_end), who));
        spans.collect::<Vec<_>>()
    };
    let mut all = on_one_clock(a.as_mut(), "a");
    all.extend(on_one_clock(b.as_mut(), "b"));
    all.sort();
    for pair in all.windows(2) {
        assert!(pair[0].1 <= pair[1].0, "full kernels overlap: {pair:?}");
    }
    let turns: String = all[1..11].iter().map(|(_, _, who)| *who).collect();
    assert!(["ababababab", "bababababa"].contains(&turns.as_str()), "{turns}");
}

#[test]
fn a_client_that_dies_takes_its_work_with_it() {
    let (server, _folder) = serve("mlx");
    let (mut gpu, queue) = open(&server);
    let kernel = full(gpu.as_ref(), Span::ms(100));
    let mut dying = greeted(&server);
    dying.write_all(&wire::line(&Request::OpenQueue { queue: 0 })).unwrap();
    for ticket in 0..40 {
        let at_ns = Monotonic::now().0;
        dying.write_all(&wire::line(&Request::Commit { queue: 0, ticket, at_ns, kernel })).unwrap();
    }
    // Its first buffer runs when it dies; without a death the rest would take four seconds.
    let soon = gpu.now() + Span::ms(50);
    gpu.sleep_until(soon);
    drop(dying);
    gpu.commit(queue, &Kernel::Empty).unwrap();
    land(gpu.as_mut(), 1);
    let later = gpu.now() + Span::ms(700);
    gpu.sleep_until(later);
    gpu.commit(queue, &kernel).unwrap();
    let c = land(gpu.as_mut(), 1)[0];
    let waited = c.gpu_start.since(c.committed);
    assert!(waited < Span::ms(10), "the GPU was taken for {waited} more");
}

#[test]
fn bad_manners_are_answered_and_disturb_nobody() {
    let (server, _folder) = serve("mlx");
    let (mut gpu, queue) = open(&server);
    gpu.commit(queue, &full(gpu.as_ref(), Span::ms(50))).unwrap();
    let check = |mut stream: UnixStream, bytes: &[u8], expected: &str| {
        // The server may have closed before the end of a long line.
        let _ = stream.write_all(bytes);
        let mut reader = BufReader::new(stream);
        let mut line = String::new();
        reader.read_line(&mut line).unwrap();
        let Ok(Reply::Refused { message }) = wire::parse(line.as_bytes()) else {
            panic!("{line:?} to {expected}")
        };
        assert!(message.contains(expected), "{message}");
        line.clear();
        assert_eq!(reader.read_line(&mut line).unwrap_or(0), 0, "closed after a refusal: {line}");
    };
    let stranger = || UnixStream::connect(server.socket()).unwrap();
    check(
        stranger(),
        b"GET / HTTP/1.1\r\n\r\n",
        "`GET / HTTP/1.1` is not a line of everwarm-sim 1",
    );
    check(stranger(), b"\xff\xfe\x00\n", "is not a line of");
    let hello = |protocol: &str, version| {
        let client = "a test".to_owned();
        wire::line(&Request::Hello { protocol: protocol.into(), version, client })
    };
    check(stranger(), &hello(wire::PROTOCOL, 99), "version 99 is not spoken here; expected 1");
    check(stranger(), &hello("http", 1), "protocol `http` is not spoken here");
    check(stranger(), &wire::line(&Request::OpenQueue { queue: 0 }), "expected a hello first");
    check(greeted(&server), &hello(wire::PROTOCOL, 1), "a second hello");
    check(greeted(&server), &[b'x'; wire::LINE_MAX], "longer than 16384 bytes");
    check(
        greeted(&server),
        &wire::line(&Request::OpenQueue { queue: 7 }),
        "queue 7 can't be opened; expected 0",
    );
    let commit = Request::Commit { queue: 0, ticket: 0, at_ns: 0, kernel: Kernel::Empty };
    check(greeted(&server), &wire::line(&commit), "queue 0 is not open");
    check(
        greeted(&server),
        b"{\"open-queue\":{\"queue\":0,\"colour\":1}}\n",
        "unknown field `colour`",
    );
    let modelled = |flops, bytes, resident| Kernel::Modelled { flops, bytes, resident };
    for (kernel, expected) in [
        (Kernel::Stream { bytes: u64::MAX }, "the limit is 1 min"),
        (modelled(1e300, 0.0, 0.0), "the limit is 1 min"),
        (modelled(0.0, 0.0, 1e300), "the limit is 1 min"),
        (modelled(0.0, -1.0, 0.0), "has a negative cost"),
        (modelled(0.0, 0.0, -1.0), "has a negative cost"),
    ] {
        let mut lines = wire::line(&Request::OpenQueue { queue: 0 });
        lines.extend(wire::line(&Request::Commit { queue: 0, ticket: 0, at_ns: 0, kernel }));
        check(greeted(&server), &lines, expected);
    }
    assert_eq!(land(gpu.as_mut(), 1).len(), 1);
}

#[test]
fn a_server_that_goes_is_a_lost_device() {
    let (server, _folder) = serve("mlx");
    let (mut gpu, queue) = open(&server);
    gpu.commit(queue, &full(gpu.as_ref(), Span::s(2))).unwrap();
    let path = server.socket().to_owned();
    drop(server);
    let deadline = gpu.now() + Span::s(5);
    let error = gpu.wait(deadline).unwrap_err();
    assert!(matches!(error, Error::Lost { .. }), "{error}");
    assert!(gpu.now() < deadline);
    assert!(matches!(gpu.commit(queue, &Kernel::Empty), Err(Error::Lost { .. })));
    assert!(matches!(gpu.counters(), Err(Error::Lost { .. })));
    assert!(!path.exists(), "the socket's file is removed");
    let error = everwarm_gpu::open(&format!("sim:{}", path.display())).map(|_| ()).unwrap_err();
    assert!(error.to_string().contains("sim-server --socket"), "{error}");
}

fn at(path: &Path) -> Result<Handle, String> {
    let mut config = Config::new("sim:m2", Runtime::built_in("mlx").unwrap());
    config.socket = Some(path.to_owned());
    spawn(config).map_err(|error| error.to_string())
}

#[test]
fn a_socket_is_its_owners_and_replaces_only_a_dead_one() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("gpu");
    drop(UnixListener::bind(&path).unwrap()); // as a killed server leaves it
    assert!(path.exists());
    let server = at(&path).expect("a dead socket is replaced");
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    let error = at(&path).map(|_| ()).unwrap_err();
    assert!(error.contains("a running server listens there already"), "{error}");
    open(&server);
    let file = folder.path().join("file");
    std::fs::write(&file, "kept").unwrap();
    assert!(at(&file).map(|_| ()).unwrap_err().contains("no socket"));
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "kept");
    let none = at(&folder.path().join("none/gpu")).map(|_| ()).unwrap_err();
    assert!(none.contains("its folder does not exist"), "{none}");
    let long = at(&folder.path().join("x".repeat(120))).map(|_| ()).unwrap_err();
    assert!(long.contains("a socket's may have 99"), "{long}");
}
