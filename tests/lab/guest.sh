#!/usr/bin/env bash
# Two small virtual machines with Debian's kernel, for mounts that the machine's own kernel may lack: NFS (from a
# Ganesha and from the kernel's own server) and OCFS2. Node 1 is a network namespace with a Ganesha; nodes 2 and 3 are
# the guests. They are emulated: they show that something works, but not how fast. CI does not run them.
#
#   guest.sh up DIR BENCHMESH          creates the lab with the given program in the guests; its addresses and paths
#                                      are in DIR/lab.env
#   guest.sh mount DIR SYSTEM          mounts it in the guests, at /mnt/SYSTEM; SYSTEM is one of
#                                        nfs3, nfs4     both guests mount node 1's ganesha, NFS 3 or 4.2
#                                        knfs3, knfs4   guest 3 mounts the export of guest 2's kernel, NFS 3 or 4.2
#                                        ocfs2          both mount their shared disk
#   guest.sh umount DIR SYSTEM
#   guest.sh on DIR NODE COMMAND       runs a busybox shell command in guest 2 or 3; exits with its exit code
#   guest.sh agent DIR NODE [OPTIONS]  starts an agent (on node 1 beside Ganesha); its log is /agent.log in guests,
#                                      DIR/agent.log on node 1
#   guest.sh cut | join | throttle DIR NODE [RATE]   changes the link of a node, see common.sh
#   guest.sh down DIR                  ends the lab, removes namespaces, links and DIR
#
# Manual use, with a collector on the host, and a plan with system = "ocfs2" and path = "/mnt/ocfs2":
#
#   benchmesh collector --listen 0.0.0.0:4750 &
#   benchmesh collector token --uses 3 > token
#   tests/lab/guest.sh up /tmp/guests target/release/benchmesh
#   tests/lab/guest.sh mount /tmp/guests ocfs2
#   for node in 2 3; do
#       tests/lab/guest.sh agent /tmp/guests $node --join "$(cat token)" --label role=client --allow /mnt/ocfs2
#   done
#   benchmesh run plan.toml --agents 2
#   tests/lab/guest.sh down /tmp/guests
#
# Needs root, /dev/net/tun and the Debian packages qemu-system-x86, seabios, busybox-static, kmod, cpio, ocfs2-tools,
# nfs-kernel-server, nfs-ganesha, nfs-ganesha-vfs, rpcbind, iproute2. The kernel is fetched by apt-get (70 MB) and
# unpacked, not installed; BM_LAB_KERNEL is a directory that caches it between labs. BM_LAB_TAG and BM_LAB_NET (default
# bv and 10.94.10) separate two labs, BM_LAB_MEMORY (default 640) is a guest's memory in MiB. Each guest has a
# shell on port 23 in the lab's network.
set -euo pipefail

verb=${1:?"up, mount, umount, on, agent, cut, join, throttle or down"}
lab=$(realpath -m "${2:?"a directory for the lab"}")
name=guest
tag=${BM_LAB_TAG:-bv}
net=${BM_LAB_NET:-10.94.10}
kernel=$(realpath -m "${BM_LAB_KERNEL:-$lab/kernel}")
root=$lab/root
PATH=$PATH:/usr/sbin:/sbin
# shellcheck source=tests/lab/common.sh
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

modules=(virtio_pci virtio_net virtio_blk ext4 crc32c_generic nfsv3 nfsv4 nfsd ocfs2 ocfs2_stack_o2cb ocfs2_dlmfs)
# Programs for the guests, copied with their libraries.
programs=(mount.nfs o2cb ocfs2_hb_ctl mount.ocfs2 rpcbind rpc.mountd rpc.nfsd exportfs)

fetch_kernel() {
    local package
    [ ! -e "$kernel/boot" ] || return 0
    mkdir -p "$kernel"
    package=$(apt-cache depends linux-image-amd64 | sed -n 's/^ *Depends: \(linux-image-\)/\1/p' | head -n 1)
    [ -n "$package" ] || fail "no linux-image-amd64 is known: apt-get update"
    (cd "$kernel" && apt-get -q -o APT::Sandbox::User=root download "$package" >&2)
    dpkg-deb -x "$kernel/$package"*.deb "$kernel"
    rm "$kernel/$package"*.deb
    depmod -b "$kernel" "$(kernel_version)"
}

kernel_version() { basename "$kernel"/lib/modules/*; }

install_program() {
    local library
    cp "$1" "$root/bin"
    for library in $(ldd "$1" 2> /dev/null | grep -o '/[^ ]*'); do
        mkdir -p "$root$(dirname "$library")"
        cp -Lu "$library" "$root$library"
    done
}

install_modules() {
    local version module file
    version=$(kernel_version)
    for module in "${modules[@]}"; do
        modprobe -d "$kernel" -S "$version" --ignore-install --show-depends "$module"
    done | sed -n "s|^insmod $kernel/*\([^ ]*\).*|\1|p" | sort -u > "$lab/modules"
    while read -r file; do
        mkdir -p "$root/$(dirname "$file")"
        cp "$kernel/$file" "$root/$file"
    done < "$lab/modules"
    cp "$kernel/lib/modules/$version"/modules.{builtin,builtin.modinfo,order} "$root/lib/modules/$version"
    depmod -b "$root" "$version"
}

# A root file system in memory: busybox, modules, the programs and their files.
write_initrd() {
    local program node
    mkdir -p "$root"/{bin,dev,proc,sys,tmp,run,root,mnt,dlm,export,etc/ocfs2,var/lib/nfs/sm,var/lib/benchmesh}
    ln -s bin "$root/sbin"
    cp "$(command -v busybox)" "$root/bin/busybox"
    for program in "${programs[@]}"; do install_program "$(command -v "$program")"; done
    install_program "$lab/benchmesh"
    install_modules
    cp -L /etc/{os-release,netconfig,protocols,rpc,services} "$root/etc"
    # rpcbind runs as _rpc.
    printf '%s\n' "root:x:0:0:root:/root:/bin/sh" "_rpc:x:100:100::/run/rpcbind:/bin/false" > "$root/etc/passwd"
    printf '%s\n' "root:x:0:" "_rpc:x:100:" > "$root/etc/group"
    ln -s /proc/mounts "$root/etc/mtab"
    echo "/export *(rw,no_root_squash,no_subtree_check,insecure,fsid=0)" > "$root/etc/exports"
    : > "$root/var/lib/nfs/etab"
    printf 'cluster:\n\theartbeat_mode = local\n\tnode_count = 2\n\tname = lab\n' > "$root/etc/ocfs2/cluster.conf"
    for node in 2 3; do
        printf '\nnode:\n\tnumber = %s\n\tcluster = lab\n\tname = guest%s\n\tip_address = %s\n\tip_port = 7777\n' \
            "$node" "$node" "$net.$node"
        echo "$net.$node guest$node" >> "$root/etc/hosts"
    done >> "$root/etc/ocfs2/cluster.conf"
    # The kernel passes the words of its command line as environment variables.
    cat > "$root/init" << 'END'
#!/bin/busybox sh
/bin/busybox --install -s /bin
export PATH=/bin HOME=/root
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
for dir in /tmp /run /var/lib/benchmesh; do mount -t tmpfs tmpfs $dir; done
for module in virtio_pci virtio_net virtio_blk; do modprobe $module; done
hostname guest$lab_node
ip link set lo up
ip addr add $lab_net.$lab_node/24 dev eth0
ip link set eth0 up
exec nc -ll -p 23 -e /bin/sh
END
    chmod +x "$root/init"
    (cd "$root" && find . | cpio --quiet -o -H newc | gzip -1 > "$lab/initrd.gz")
    rm -rf "$root"
}

# The guest uses the address of its node: inside the namespace its network card and eth0 are on one bridge.
start_guest() {
    local node=$1
    on_node "$node" ip addr flush dev eth0
    on_node "$node" ip link add br0 type bridge
    on_node "$node" ip tuntap add tap0 mode tap
    on_node "$node" ip link set eth0 master br0
    on_node "$node" ip link set tap0 master br0 up
    on_node "$node" ip link set br0 up
    on_node "$node" qemu-system-x86_64 -daemonize -display none -nodefaults -no-reboot \
        -accel tcg -cpu max -smp 1 -m "${BM_LAB_MEMORY:-640}" -rtc base=utc \
        -kernel "$kernel/boot/vmlinuz-$(kernel_version)" -initrd "$lab/initrd.gz" \
        -append "console=ttyS0 quiet panic=1 lab_node=$node lab_net=$net" -serial "file:$lab/console$node.log" \
        -netdev tap,id=net,ifname=tap0,script=no,downscript=no \
        -device "virtio-net-pci,netdev=net,mac=52:54:00:00:00:0$node" \
        -drive "file=$lab/shared.img,format=raw,if=virtio,cache=none,file.locking=off" \
        -drive "file=$lab/own$node.img,format=raw,if=virtio"
}

# The guest's shell prints the command's exit code last.
guest() {
    local node=$1 answer
    shift
    answer=$({
        printf '{ %s\n} 2>&1 < /dev/null; echo "exit $?"; exit\n' "$*" >&3
        cat <&3
    } 3<> "/dev/tcp/$net.$node/23") || return
    printf '%s' "${answer%exit *}"
    return "${answer##*exit }"
}

# NFS 3 needs rpcbind, whose socket and lock have fixed paths: give them a separate /run.
start_ganesha() {
    mkdir -p "$lab/export" "$lab/recovery"
    cat > "$lab/ganesha.conf" << END
NFS_CORE_PARAM {
    Bind_addr = $net.1;
    MNT_Port = 20048;
    Protocols = 3, 4;
    Enable_NLM = false;
    Enable_RQUOTA = false;
    mount_path_pseudo = true;
}
NFSv4 {
    Minor_Versions = 1, 2;
    Graceless = true;
    Only_Numeric_Owners = true;
    RecoveryRoot = $lab/recovery;
}
NFS_KRB5 { Active_krb5 = false; }
EXPORT {
    Export_Id = 1;
    Path = $lab/export;
    Pseudo = /export;
    Protocols = 3, 4;
    Transports = TCP;
    Access_Type = RW;
    Squash = No_Root_Squash;
    SecType = sys;
    FSAL { Name = VFS; }
}
END
    on_node 1 unshare -m sh -c "mount -t tmpfs tmpfs /run && mkdir -p /run/rpcbind /run/ganesha && rpcbind -w &&
        ganesha.nfsd -f $lab/ganesha.conf -L $lab/ganesha.log -p $lab/ganesha.pid" &> "$lab/ganesha.start"
}

up() {
    local node benchmesh=${1:?"the benchmesh program for the guests"}
    needs "qemu-system-x86, busybox-static, kmod, cpio, ocfs2-tools, nfs-kernel-server, nfs-ganesha-vfs and rpcbind" \
        qemu-system-x86_64 busybox depmod cpio mkfs.ocfs2 mkfs.ext4 ganesha.nfsd "${programs[@]}"
    make_nodes
    cp "$benchmesh" "$lab/benchmesh"
    fetch_kernel
    write_initrd
    truncate -s 1G "$lab/shared.img" "$lab/own2.img" "$lab/own3.img"
    mkfs.ocfs2 -q -F -b 4K -C 4K -N 2 -J size=16M --cluster-stack=o2cb --cluster-name=lab "$lab/shared.img" \
        < /dev/null &> "$lab/mkfs.log" || fail "mkfs.ocfs2: see $lab/mkfs.log"
    for node in 2 3; do
        mkfs.ext4 -q "$lab/own$node.img"
        start_guest "$node"
    done
    start_ganesha
    for node in 2 3; do await 120 "guest $node answers" guest "$node" true; done
    await 30 "ganesha answers" on_node 1 sh -c "ss -Hltn 'sport = :2049' | grep -q ."
    write_facts "ganesha=$net.1:/export" "knfs=$net.2:/export" "export=$lab/export"
    note "guests 2 and 3 run"
}

mount_nfs() { # NODE SERVER:PATH VERSION DIRECTORY
    guest "$1" "modprobe nfsv3 && modprobe nfsv4 && mkdir -p $4 &&
        mount.nfs $2 $4 -o vers=$3,proto=tcp$([ "$3" != 3 ] || echo ,nolock,mountproto=tcp,mountport=20048)"
}

serve_nfs() {
    guest 2 'grep -q " /export " /proc/mounts || {
        modprobe -a ext4 nfsd && mount -t ext4 /dev/vdb /export && chmod 777 /export && rmdir /export/lost+found &&
        mount -t nfsd nfsd /proc/fs/nfsd && mkdir -p /var/lib/nfs/v4recovery /run/rpcbind && rpcbind -w &&
        exportfs -a && rpc.mountd -p 20048 && rpc.nfsd 8; }'
}

# One node after the other.
mount_ocfs2() {
    local node
    for node in 2 3; do
        guest "$node" 'grep -q " /dlm " /proc/mounts || {
            modprobe -a crc32c_generic ocfs2 ocfs2_stack_o2cb ocfs2_dlmfs &&
            mount -t configfs configfs /sys/kernel/config && mount -t ocfs2_dlmfs dlm /dlm &&
            echo o2cb > /sys/fs/ocfs2/cluster_stack && o2cb register-cluster lab; } &&
            mkdir -p /mnt/ocfs2 && mount.ocfs2 /dev/vda /mnt/ocfs2'
    done
}

# Prints the guests that have it mounted.
nodes_of() { case $1 in knfs*) echo 3 ;; *) echo 2 3 ;; esac }

mount_system() {
    local node
    case $1 in
        nfs3 | nfs4) for node in 2 3; do mount_nfs "$node" "$net.1:/export" "$(nfs_version "$1")" "/mnt/$1"; done ;;
        knfs3 | knfs4) serve_nfs && mount_nfs 3 "$net.2:$(knfs_path "$1")" "$(nfs_version "$1")" "/mnt/$1" ;;
        ocfs2) mount_ocfs2 ;;
        *) fail "$1: not one of nfs3, nfs4, knfs3, knfs4, ocfs2" ;;
    esac
}

nfs_version() { case $1 in *3) echo 3 ;; *) echo 4.2 ;; esac }
# fsid=0 makes it the root of the NFS 4 namespace.
knfs_path() { case $1 in *3) echo /export ;; *) echo / ;; esac }

umount_system() {
    local node
    for node in $(nodes_of "$1"); do guest "$node" "umount /mnt/$1"; done
}

agent() {
    local node=$1
    shift
    if [ "$node" = 1 ]; then
        on_node 1 setsid "$lab/benchmesh" agent --collector "$net.254:4750" --name node1 \
            --state-dir "$lab/agent" "$@" &> "$lab/agent.log" < /dev/null &
    else
        guest "$node" "setsid benchmesh agent --collector $net.254:4750 --state-dir /var/lib/benchmesh/state $* \
            > /agent.log 2>&1 &"
    fi
}

case $verb in
    up) up "${@:3}" ;;
    mount | umount) "${verb}_system" "${3:?"nfs3, nfs4, knfs3, knfs4 or ocfs2"}" ;;
    on) guest "${3:?"2 or 3"}" "${*:4}" ;;
    agent) agent "${3:?"1, 2 or 3"}" "${@:4}" ;;
    cut | join | throttle) "$verb" "${@:3}" ;;
    down) down ;;
    *) fail "$verb: not one of up, mount, umount, on, agent, cut, join, throttle, down" ;;
esac
