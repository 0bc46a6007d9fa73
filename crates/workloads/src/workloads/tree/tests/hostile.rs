//! Hostile archives: each is refused before anything is created, or unpacked without harm.

use super::*;
use crate::registry;

/// A tar archive, written by hand.
pub(super) struct Tar(Vec<u8>);

impl Tar {
    pub(super) fn new() -> Self {
        Self(Vec::new())
    }

    fn entry(
        &mut self,
        kind: u8,
        name: &[u8],
        target: &[u8],
        claimed: u64,
        content: &[u8],
    ) -> &mut Self {
        let mut header = [0_u8; 512];
        header[..name.len()].copy_from_slice(name);
        header[100..108].copy_from_slice(b"0000644\0");
        let size = format!("{claimed:011o}\0");
        header[124..136].copy_from_slice(size.as_bytes());
        header[148..156].copy_from_slice(b"        ");
        header[156] = kind;
        header[157..157 + target.len()].copy_from_slice(target);
        header[257..265].copy_from_slice(b"ustar\x0000");
        let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
        header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        self.0.extend_from_slice(&header);
        self.0.extend_from_slice(content);
        self.0.resize(self.0.len().next_multiple_of(512), 0);
        self
    }

    pub(super) fn file(&mut self, name: &str, claimed: u64, content: &[u8]) -> &mut Self {
        self.entry(b'0', name.as_bytes(), b"", claimed, content)
    }

    fn link(&mut self, kind: u8, name: &str, target: &str) -> &mut Self {
        self.entry(kind, name.as_bytes(), target.as_bytes(), 0, b"")
    }

    fn extra(&mut self, kind: u8, content: &[u8]) -> &mut Self {
        let bytes = u64::try_from(content.len()).unwrap();
        self.entry(kind, b"extra", b"", bytes, content)
    }

    pub(super) fn end(&mut self) -> Vec<u8> {
        let mut whole = self.0.clone();
        whole.resize(whole.len() + 1024, 0);
        whole
    }
}

fn pax(key: &str, value: &str) -> Vec<u8> {
    let rest = format!(" {key}={value}\n");
    let mut length = rest.len();
    while length != rest.len() + length.to_string().len() {
        length = rest.len() + length.to_string().len();
    }
    format!("{length}{rest}").into_bytes()
}

fn refused(archive: &[u8], part: &str) {
    let cell = cell();
    let params = with_archive(&cell, archive);
    for mode in ["unpack", "walk"] {
        let error = crate::error_chain(&cell.refusal(mode, params.clone()));
        assert!(error.contains(part), "{error:?} does not say {part:?}");
    }
    let made = found(cell.top.path());
    let stray = made.keys().find(|path| {
        let text = path.to_string_lossy();
        !text.starts_with("benchmesh-run") && text != "archive"
    });
    assert_eq!(stray, None);
    assert!(!cell.task_dir().join("w0").exists());
}

#[test]
fn names_and_links_that_lead_out_are_refused() {
    for name in ["/etc/passwd", "../out", "a/../../out", "a/..", ".."] {
        refused(
            &Tar::new().file(name, 1, b"x").end(),
            "the archive has an entry",
        );
        refused(
            &Tar::new().link(b'5', name, "").end(),
            "the archive has an entry",
        );
        refused(
            &Tar::new().link(b'1', "link", name).end(),
            "outside of the tree",
        );
        refused(
            &Tar::new()
                .extra(b'x', &pax("path", name))
                .file("a", 1, b"x")
                .end(),
            "the archive has an entry",
        );
        refused(
            &Tar::new()
                .extra(b'L', name.as_bytes())
                .file("a", 1, b"x")
                .end(),
            "the archive has an entry",
        );
    }
    for target in ["/etc", "..", "../..", "a/../../b", ""] {
        refused(
            &Tar::new().link(b'2', "link", target).end(),
            "leads out of the tree",
        );
    }
    // Each stays within the tree by its text alone, and leads out of it through the other.
    refused(
        &Tar::new()
            .link(b'2', "a/b/l", "..")
            .link(b'2', "s", "a/b/l/../..")
            .end(),
        "leads out of the tree",
    );
    refused(
        &Tar::new()
            .extra(b'x', &pax("linkpath", "../../etc"))
            .link(b'2', "a/link", "inside")
            .end(),
        "leads out of the tree",
    );
    refused(
        &Tar::new().extra(b'L', b"").link(b'0', "", "").end(),
        "no name",
    );
}

/// A hard link to a symlink is the same symlink in another directory, from which it leads elsewhere.
#[test]
fn a_symlink_gets_no_second_name_and_no_symlink_leads_out() {
    let archive = Tar::new()
        .link(b'2', "a/b/up", "../..")
        .link(b'2', "a/b/beside", "./../c//d")
        .link(b'2', "down", "a/b/up/a/b")
        .link(b'1', "out", "a/b/up")
        .file("a/c/d", 1, b"x")
        .link(b'1', "hard", "a/c/d")
        .end();
    let cell = cell();
    let outcome = cell.run("unpack", with_archive(&cell, &archive));
    assert_eq!(outcome.end.error, None);
    assert_eq!(outcome.of(Op::Symlink), (3, 0, 0));
    assert_eq!(outcome.of(Op::Link), (1, 0, 1), "{:?}", outcome.end.errors);
    let root = cell.task_dir().join("w0").canonicalize().unwrap();
    for name in ["a/b/up", "a/b/beside", "down", "hard"] {
        let leads = root.join(name).canonicalize().unwrap();
        assert!(leads.starts_with(&root), "{name} leads to {leads:?}");
    }
    assert!(!root.join("out").is_symlink());
}

#[test]
fn what_is_neither_file_nor_directory_is_refused() {
    for (kind, part) in [
        (b'3', "a device"),
        (b'4', "a device"),
        (b'6', "a pipe"),
        (b'S', "sparse"),
        (b'Z', "a kind that is not known"),
    ] {
        refused(&Tar::new().link(kind, "thing", "").end(), part);
    }
    refused(
        &Tar::new()
            .extra(b'x', &pax("GNU.sparse.major", "1"))
            .file("a", 0, b"")
            .end(),
        "sparse",
    );
}

#[test]
fn huge_claims_are_refused_before_they_are_believed() {
    let petabyte = pax("size", "1000000000000000");
    refused(
        &Tar::new().extra(b'x', &petabyte).file("a", 1, b"x").end(),
        "more than the target has free",
    );
    // A number in GNU's binary format, larger than any counter.
    let mut archive = Tar::new().file("large", 0, b"").end();
    archive.truncate(512);
    archive[124..136].copy_from_slice(&[0xff; 12]);
    archive[148..156].copy_from_slice(b"        ");
    let sum: u32 = archive.iter().map(|byte| u32::from(*byte)).sum();
    archive[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    refused(&archive, "no number");
    refused(
        &Tar::new()
            .extra(b'x', &pax("size", "9999999999999999999"))
            .file("a", 1, b"x")
            .end(),
        "larger than any can be",
    );
    refused(
        &Tar::new().entry(b'L', b"long", b"", 5 << 30, b"").end(),
        "too long",
    );
    let mut many = Tar::new();
    for _ in 0..40 {
        many.extra(b'g', &pax("comment", "again"));
    }
    refused(&many.file("a", 1, b"x").end(), "too long");
    refused(
        &Tar::new()
            .extra(b'L', &[b'n'; 300])
            .file("a", 1, b"x")
            .end(),
        "longer than a name can be",
    );
    refused(
        &Tar::new()
            .extra(b'L', "a/".repeat(3000).as_bytes())
            .file("a", 1, b"x")
            .end(),
        "longer than a path can be",
    );
    // An xz block that requests a dictionary of 1.5 GiB (property 35), with a valid header checksum.
    let mut header = [0x02, 0x00, 0x21, 0x01, 35, 0, 0, 0, 0, 0, 0, 0];
    let crc = crc32(&header[..8]);
    header[8..].copy_from_slice(&crc.to_le_bytes());
    let mut flags = vec![0x00, 0x00];
    flags.extend_from_slice(&crc32(&[0, 0]).to_le_bytes());
    let xz = [
        &[0xfd, b'7', b'z', b'X', b'Z', 0][..],
        &flags,
        &header,
        &[0; 64],
    ]
    .concat();
    refused(&xz, "memory");
    // A zstd frame that requests a window of 3.75 TiB.
    refused(&[0x28, 0xb5, 0x2f, 0xfd, 0x00, 0xff, 0x01, 0, 0], "indow");
}

fn crc32(bytes: &[u8]) -> u32 {
    let mut crc = flate2::Crc::new();
    crc.update(bytes);
    crc.sum()
}

#[test]
fn what_is_broken_says_so() {
    refused(b"", "ends in the middle");
    refused(&[b'x'; 2000], "checksum");
    refused(&[0; 1024], "no entry");
    let whole = Tar::new().file("a", 3000, &[b'a'; 3000]).end();
    refused(&whole[..600], "ends in the middle");
    refused(&whole[..300], "ends in the middle");
    for (content, half) in [(GNU_GZ, 100), (PAX_XZ, 100), (USTAR_ZST, 60)] {
        refused(&content[..half], "archive");
        let mut flipped = content.to_vec();
        let middle = flipped.len() / 2;
        flipped[middle] ^= 0x10;
        refused(&flipped, "archive");
    }
    // The compression's own checksum, which lies after the end of the archive.
    for (content, from_end) in [(GNU_GZ, 6), (PAX_XZ, 20), (USTAR_ZST, 2)] {
        let mut flipped = content.to_vec();
        let at = flipped.len() - from_end;
        flipped[at] ^= 0x10;
        refused(&flipped, "archive");
    }
    // Padding that gzip itself ignores.
    let cell = cell();
    let padded = [GNU_GZ, &[0; 5000]].concat();
    let done = cell.run("unpack", with_archive(&cell, &padded));
    assert_eq!((&done.end.error, done.sum(|it| it.errors)), (&None, 0));
    let mut endless = Tar::new().file("a", 1, b"x").end();
    endless.resize(70 << 20, 0);
    refused(&endless, "goes on behind its end");
    refused(
        &Tar::new().extra(b'x', b"nonsense").file("a", 1, b"x").end(),
        "extended header",
    );
    refused(
        &Tar::new()
            .extra(b'x', b"999 path=a\n")
            .file("a", 1, b"x")
            .end(),
        "extended header",
    );
}

#[test]
fn a_path_through_a_symlink_of_the_archive_does_not_leave_it() {
    let cell = cell();
    fs::create_dir(cell.top.path().join("outside")).unwrap();
    let mut archive = Tar::new();
    archive
        .link(b'5', "dir", "")
        .link(b'2', "link", "dir")
        .file("link/through", 1, b"x")
        .link(b'1', "hard", "link/through")
        .file("after", 1, b"y");
    let params = with_archive(&cell, &archive.end());
    let outcome = cell.run("unpack", params);
    assert_eq!(
        outcome.of(Op::Create),
        (1, 1, 1),
        "{:?}",
        outcome.end.errors
    );
    assert_eq!(outcome.of(Op::Link), (0, 0, 1));
    assert!(!cell.task_dir().join("w0/dir/through").exists());
    // It was incomplete, so the next mode lays it out again, and reports why it cannot.
    let again = json!({ "archive": cell.top.path().join("archive") });
    let error = crate::error_chain(&cell.refusal("walk", again));
    assert!(error.contains("link/through"), "{error}");
}

#[test]
fn a_symlink_that_takes_a_directory_s_place_during_the_load_is_not_followed() {
    let cell = cell();
    let outside = cell.top.path().join("outside");
    fs::create_dir(&outside).unwrap();
    fs::write(outside.join("precious"), b"x").unwrap();
    let params = json!({"files": 40, "directories": 4});
    let spec = cell.spec("remove", params);
    let mut task = registry::prepare(&spec, &PrepareControl::silent()).unwrap();
    let victim = cell.task_dir().join("w0/d000000000/d000000001");
    fs::remove_dir_all(&victim).unwrap();
    std::os::unix::fs::symlink(&outside, &victim).unwrap();
    arm_soon(&mut task);
    let end = task.run_to_end(&mut |_| {});
    assert_eq!(end.state, End::Done, "{end:?}");
    assert!(outside.join("precious").exists());
    assert_eq!(found(&cell.task_dir().join("w0")), BTreeMap::new());
}

#[test]
fn only_what_the_agent_lets_be_read_is_read() {
    let cell = cell();
    let elsewhere = tempfile::tempdir().unwrap();
    let path = elsewhere.path().join("archive.tar");
    fs::write(&path, Tar::new().file("a", 1, b"x").end()).unwrap();
    let error = crate::error_chain(&cell.refusal("unpack", json!({ "archive": path })));
    assert!(error.contains("not beneath a path"), "{error}");
    let link = cell.top.path().join("link");
    std::os::unix::fs::symlink(&path, &link).unwrap();
    let error = crate::error_chain(&cell.refusal("unpack", json!({ "archive": link })));
    assert!(error.contains("not beneath a path"), "{error}");
    let pipe = cell.top.path().join("pipe");
    rustix::fs::mknodat(
        rustix::fs::CWD,
        &pipe,
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RUSR,
        0,
    )
    .unwrap();
    let error = crate::error_chain(&cell.refusal("unpack", json!({ "archive": pipe })));
    assert!(error.contains("no regular file"), "{error}");
}
