# Lists the images in containerd's namespace `k8s.io`.
PATH=$PATH:/usr/sbin:/sbin:/usr/local/sbin:/usr/local/bin
timeout -k 5 50 ctr --namespace k8s.io images ls -q
