#!/bin/sh
# Run by cloud-init as root: prepares a machine that spotctl rents. It holds no secret, and may run again at any boot.
# First a watchdog that ends the machine with its lease; then the launcher's way in. The launcher brings the rest.
set -u
root=/opt/spotctl user=@USER@
umask 022
mkdir -p $root
[ -f "$0" ] && [ -d /var/lib/cloud/scripts/per-boot ] && cp "$0" /var/lib/cloud/scripts/per-boot/spotctl 2>/dev/null &&
  chmod 700 /var/lib/cloud/scripts/per-boot/spotctl
say() { echo "spotctl: $*" 2>/dev/null >/dev/console || :; }

# No ssh session has the PATH of a container's image, which may alone lead to its Python.
echo "$PATH" >$root/path

# A lease that was renewed before this boot stands.
mkdir -p $root/agent
if [ ! -s $root/agent/lease ]; then
  uptime=$(cut -d. -f1 /proc/uptime)
  echo "@LEASE_UNTIL@ $((uptime + @LEASE_SECONDS@))" >$root/agent/lease
fi
base64 -d <<'EOF' | gzip -d >$root/self_deletion.py
@SELF_DELETION@
EOF
base64 -d <<'EOF' | gzip -d >$root/this_cloud.py
@THIS_CLOUD@
EOF
cat >$root/watchdog <<'EOF'
#!/bin/sh
# Ends this machine when its lease is over, or when its agent has ended or died.
root=/opt/spotctl
say() { echo "spotctl: $*" 2>/dev/null >/dev/console || :; }
exec 9>$root/watchdog.lock
flock -n 9 || exit 0
echo -1000 2>/dev/null >/proc/self/oom_score_adj
end() {
  say "ending this machine: $1"
  out=/dev/null
  if (: >/dev/console) 2>/dev/null; then out=/dev/console; fi
  # A container cannot switch itself off, so it asks its cloud again until that answers.
  while :; do
    if command -v python3 >/dev/null; then
      python3 -I -S $root/self_deletion.py $root/this_cloud.py >$out 2>&1 9>&- || say "switching off without having been deleted"
    else
      say "no python3: switching off without asking the cloud"
    fi
    shutdown -h now 9>&-
    sleep 30
    poweroff -f 9>&-
    sleep 30
  done
}
epoch=0 uptime=0 turns=0
while :; do
  # The launcher takes each line for a sign of life: what is installed here may be quiet for minutes.
  turns=$((turns + 1))
  [ -e $root/ready ] || [ $((turns % 60)) -ne 0 ] || say "still preparing after $turns s"
  if read -r a b <$root/agent/lease; then
    case "$a$b" in '' | *[!0-9]*) ;; *) epoch=$a uptime=$b ;; esac
  fi 2>/dev/null
  now=$(cut -d. -f1 /proc/uptime)
  if [ "$(date +%s)" -ge "$epoch" ] || [ "$now" -ge "$uptime" ]; then end "its lease is over"; fi
  if [ -e $root/agent/ended ]; then end "$(head -c 200 $root/agent/ended)"; fi
  if [ -e $root/agent/started ] && flock -n $root/agent/lock true; then
    sleep 1
    if [ -e $root/agent/ended ]; then end "$(head -c 200 $root/agent/ended)"; fi
    end "its agent does not run any more"
  fi
  sleep 1
done
EOF
setsid sh $root/watchdog </dev/null >/dev/null 2>&1 &

base64 -d <<'EOF' | gzip -d >$root/machine.json
@MACHINE@
EOF
if ! id $user >/dev/null 2>&1; then
  # A system user, because logind removes the shared memory of others when they log out.
  useradd --system --create-home --home-dir /home/$user --shell /bin/sh --password '*' $user
fi
home=$(getent passwd $user | cut -d: -f6)
mkdir -p $home/.ssh
echo '@PUBLIC_KEY@' >$home/.ssh/authorized_keys
chmod 700 $home/.ssh
chmod 600 $home/.ssh/authorized_keys
for folder in agent bundles jobs cache incoming; do
  mkdir -p $root/$folder
  chmod 700 $root/$folder
  chown $user: $root/$folder
done
chown -R $user: $home/.ssh $root/agent/lease
ln -sfn jobs/current $root/job
if [ -d /etc/sudoers.d ]; then
  echo "$user ALL=(ALL) NOPASSWD:ALL" >/etc/sudoers.d/90-$user
  chmod 440 /etc/sudoers.d/90-$user
fi
if [ -d /etc/ssh/sshd_config.d ]; then
  # The ports of a launcher that has vanished without a word become free for the next one.
  printf 'ClientAliveInterval 10\nClientAliveCountMax 3\n' >/etc/ssh/sshd_config.d/90-$user.conf
  systemctl reload ssh 2>/dev/null || kill -HUP "$(cat /run/sshd.pid 2>/dev/null)" 2>/dev/null || :
fi
# A fresh image upgrades itself. The programs here need no newer packages, and `apt-get update` fails while another one
# runs, however long it may wait for dpkg.
if [ -d /etc/apt/apt.conf.d ]; then
  printf 'DPkg::Lock::Timeout "300";\nAPT::Periodic::Enable "0";\n' >/etc/apt/apt.conf.d/90-$user
  systemctl mask --now apt-daily.timer apt-daily-upgrade.timer apt-daily.service 2>/dev/null || :
fi
if [ -n "@CONTAINERS@" ]; then
  # The job says clearly that podman is missing, if it cannot be installed.
  command -v podman >/dev/null || {
    export DEBIAN_FRONTEND=noninteractive
    apt="apt-get -qy"
    if command -v apt-get >/dev/null; then $apt update && $apt install podman crun uidmap
    else dnf install -qy podman crun shadow-utils; fi
  }
  if command -v newuidmap >/dev/null && ! grep -q "^$user:" /etc/subuid; then
    usermod --add-subuids 1000000-1065535 --add-subgids 1000000-1065535 $user
  fi
  if command -v nvidia-ctk >/dev/null; then
    mkdir -p /etc/cdi && nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml
  fi
fi
# The agent needs Python 3.11. Ubuntu 22.04 has 3.10, and 3.11 among its packages; images of containers may have none.
usable() { command -v "$1" >/dev/null && "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))'; }
if ! usable python3 && ! usable python3.13 && ! usable python3.12 && ! usable python3.11 && command -v apt-get >/dev/null; then
  export DEBIAN_FRONTEND=noninteractive
  apt="apt-get -qy"
  $apt update && { $apt install python3.11 || $apt install python3; }
fi
key=/etc/ssh/ssh_host_ed25519_key
[ -s $key.pub ] || ssh-keygen -q -t ed25519 -N '' -f $key
say "host key $(cut -d' ' -f1,2 $key.pub)"
say "host key fingerprint $(ssh-keygen -lf $key.pub | cut -d' ' -f2)"
touch $root/ready
say ready
