# Prints what tells one boot of this machine from the next. System containers share the kernel's id: there the start of
# process 1 differs. Both are empty where they are hidden.
boot() {
  printf '%s-%s\n' "$(cat /proc/sys/kernel/random/boot_id 2>/dev/null)" \
    "$(sed 's/.*) //' /proc/1/stat 2>/dev/null | cut -d ' ' -f 20)"
}
