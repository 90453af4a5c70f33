# In the order in which nothing is used any more by what comes after. A function may be called
# alone (`--only`).
for step in ${only:-clean_pods clean_mounts clean_cri clean_namespaces clean_links clean_rules \
  clean_folders clean_cgroups restore_sysctls \
  left_of_pods left_of_mounts left_of_namespaces left_of_links left_of_rules left_of_folders}; do
  case $step in
  left_of_folders) own_folders left ;;
  *) "$step" ;;
  esac
done
mark done
