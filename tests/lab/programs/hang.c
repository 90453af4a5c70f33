/* Mounts a file system that never answers, as a dead NFS server's does: whoever touches it waits. */
#include <fcntl.h>
#include <linux/fuse.h>
#include <stdio.h>
#include <sys/mount.h>
#include <unistd.h>

static char buffer[1 << 20];

int main(int argc, char **argv) {
    char options[96];
    int fuse = open("/dev/fuse", O_RDWR);
    snprintf(options, sizeof options, "fd=%d,rootmode=40755,user_id=0,group_id=0,allow_other", fuse);
    if (argc != 2 || fuse < 0 || mount("dead-server:/export", argv[1], "fuse", 0, options) != 0) {
        perror("hang");
        return 1;
    }
    for (;;) {
        ssize_t length = read(fuse, buffer, sizeof buffer);
        const struct fuse_in_header *in = (const void *)buffer;
        if (length < (ssize_t)sizeof *in)
            return 1;
        if (in->opcode != FUSE_INIT)
            continue;
        struct {
            struct fuse_out_header header;
            struct fuse_init_out init;
        } out = {.header = {.len = sizeof out, .unique = in->unique},
                 .init = {.major = FUSE_KERNEL_VERSION, .minor = 31, .max_write = 4096}};
        if (write(fuse, &out, sizeof out) != sizeof out)
            return 1;
        /* Nothing is read any more: who waits can be killed, as with NFS, and waits until then. */
        for (;;)
            pause();
    }
}
