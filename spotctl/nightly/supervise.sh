#!/bin/sh
# Starts a night of a spotctl job: sh FOLDER/supervise PROGRAM ARGUMENT...
# Records the begin and the end of each start in FOLDER/starts, and reports a night that could not start or was killed.
# It needs no Python, and no free space: the record has lines of a fixed size, which are overwritten in place.
# Installed by `spotctl nightly install`; changes to it are lost at the next installation.

folder=${0%/*} slots=400 bytes=256
name=${folder##*/} starts=$folder/starts
umask 077

create_record() {
    line=0
    while [ "$line" -lt "$slots" ]; do
        printf '%255s\n' '' || return
        line=$((line + 1))
    done >"$starts.$$" && mv "$starts.$$" "$starts" || rm -f "$starts.$$"
}

next_number() {
    latest=0
    while IFS= read -r line; do
        number=${line#number=} number=${number%% *}
        case $line in number=[1-9]*) ;; *) continue ;; esac
        case $number in *[!0-9]* | ??????????*) continue ;; esac
        [ "$number" -le "$latest" ] || latest=$number
    done <"$starts"
    echo $((latest + 1))
}

# record FIELDS: the line of this start
record() {
    [ -f "$starts" ] || return
    printf '%-255.255s\n' "number=$number began=$began pid=$$ $1" |
        LC_ALL=C dd of="$starts" ibs=$bytes obs=$bytes seek=$((number % slots)) conv=notrunc 2>/dev/null
}

# The fields that the night has added to the line of this start.
added() {
    line=$(dd if="$starts" bs=$bytes skip=$((number % slots)) count=1 2>/dev/null)
    line=${line%"${line##*[! ]}"}
    case $line in
    "number=$number "*" reported="*) echo "reported=${line#* reported=}" ;;
    *) echo reported=no ;;
    esac
}

# value NAME FILE: the value in the last line NAME=...
value() {
    last=
    while IFS= read -r line || [ -n "$line" ]; do
        line=${line#"${line%%[![:space:]]*}"} line=${line%"${line##*[![:space:]]}"} line=${line#export }
        case $line in "$1="*) last=${line#*=} ;; esac
    done 2>/dev/null <"$2"
    case $last in \"*\" | \'*\') last=${last#?} last=${last%?} ;; esac
    printf %s "$last"
}

# address KIND: where to report. $NAME is read from the environment file.
address() {
    [ -r "$folder/addresses" ] || return
    to=$(value "$1" "$folder/addresses")
    case $to in
    \$*) if [ -r "$folder/environment" ]; then value "${to#?}" "$folder/environment"; fi ;;
    *) printf %s "$to" ;;
    esac
}

quoted() { printf %s "$1" | sed 's/[\\"]/\\&/g'; }

# request ADDRESS [BODY]: the address is a secret, so it is no argument, which others could see.
request() {
    {
        printf 'url = "%s"\n' "$(quoted "$1")"
        proxy=$([ ! -r "$folder/environment" ] || value HTTPS_PROXY "$folder/environment")
        case $1 in https:*) [ -z "$proxy" ] || printf 'proxy = "%s"\n' "$(quoted "$proxy")" ;; esac
        [ -z "$2" ] || printf 'header = "Content-Type: application/json"\ndata = "%s"\n' "$(quoted "$2")"
    } | curl -q --config - --globoff --silent --fail --max-time 10 --retry 2 --retry-delay 1 --output /dev/null
}

# body ADDRESS: the message in the format of its receiver
body() {
    title="$name, night of $today: $outcome" advice="fix it; then run: spotctl nightly run $name"
    text="$title\\nWhat happened: $why\\nWhat to do: $advice"
    case $1 in
    *://hooks.slack.com/*) printf '{"text": "%s"}' "$text" ;;
    *://discord.com/* | *://discordapp.com/*) printf '{"content": "%s"}' "$text" ;;
    *.webhook.office.com/* | *.logic.azure.com[:/]* | *.api.powerplatform.com[:/]*)
        card='{"type": "AdaptiveCard", "version": "1.4", "body": [{"type": "TextBlock", "wrap": true, "text": "%s"}]}'
        kind=application/vnd.microsoft.card.adaptive
        printf "{\"type\": \"message\", \"attachments\": [{\"contentType\": \"$kind\", \"content\": $card}]}" "$text"
        ;;
    *)
        facts='"event": "night failed", "name": "%s", "night": "%s", "outcome": "%s", "message": "%s"'
        printf "{\"text\": \"%s\", \"id\": \"%s\", \"ok\": false, \"facts\": {$facts}}" \
            "$text" "$name-$began" "$name" "$today" "$outcome" "$why"
        ;;
    esac
}

# Whether the webhook, or without one the health check, has heard of the failure.
report() {
    command -v curl >/dev/null || return
    webhook=$(address webhook) heartbeat=$(address heartbeat)
    [ -z "$heartbeat" ] || request "${heartbeat%/}/fail"
    heard=$?
    [ -z "$webhook$heartbeat" ] && return 1
    [ -z "$webhook" ] || { request "$webhook" "$(body "$webhook")"; heard=$?; }
    return $heard
}

# explain PROGRAM STATUS: sets `outcome` and `why`
explain() {
    outcome="could not begin"
    case $2 in
    126 | 127) why="$1 does not exist or cannot be run; install spotctl again, then run spotctl nightly install again" ;;
    1[3-9][0-9])
        outcome=interrupted
        why="killed by signal $(($2 - 128)) ($(kill -l $(($2 - 128)) 2>/dev/null)); the next start resumes the run"
        ;;
    *)
        why=$("$1" -P -c 'import spotctl.cli.app, spotctl.nightly.night_runner' 2>&1 | tail -n 1)
        # Any command finds settings that cannot be read.
        [ -n "$why" ] || said=$("$1" -P -m spotctl --home "${folder%/nightly/*}" nightly ls 2>&1 >/dev/null) ||
            why=$(printf '%s\n' "$said" | tail -n 1)
        why=${why#spotctl: }
        why="exit status $2${why:+: $why}"
        ;;
    esac
    # In JSON, and in the record, these are as they are.
    why=$(printf %s "$why" | LC_ALL=C tr -cd 'A-Za-z0-9 ._:/()=,;@-' | cut -c 1-150)
}

[ -f "$starts" ] || create_record 2>/dev/null
began=$(date +%s) today=$(date +%Y-%m-%d) number=
if [ -f "$starts" ]; then number=$(next_number); fi
[ -n "$number" ] && record reported=no || number=0

trap 'kill -TERM "$child" 2>/dev/null' TERM INT HUP
SPOTCTL_NIGHT_START=$number "$@" &
child=$!
wait "$child"
status=$?
# A signal ends `wait` early.
while kill -0 "$child" 2>/dev/null; do
    wait "$child"
    status=$?
done

fields=reported=no
[ "$number" = 0 ] || fields=$(added)
ending="ended=$(date +%s) status=$status"
if [ "$number" != 0 ] && ! record "$ending $fields"; then
    status=1 fields="reported=no why=$starts cannot be written"
fi
case "$status $fields" in
"0 "* | *" reported=yes"*) ;;
*)
    explain "$1" "$status"
    case $fields in *why=*) why=${fields#*why=} ;; esac
    message="spotctl nightly $name: $outcome: $why"
    logger -t spotctl -p user.err -- "$message" 2>/dev/null
    echo "$message"
    fields="reported=no why=$why"
    if report; then fields="reported=yes why=$why"; fi
    [ "$number" = 0 ] || record "$ending $fields"
    ;;
esac
# systemd starts a night again that was killed, so it must see that.
case $status in 13[4-9]) [ -z "$INVOCATION_ID" ] || kill -s KILL $$ ;; esac
exit "$status"
