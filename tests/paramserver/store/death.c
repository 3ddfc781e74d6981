// Preloaded into a process that writes below SHIM_ROOT: kills it at one of its system calls there.
//
// Calls that change something below SHIM_ROOT are counted: write, pwrite, writev, rename, link, unlink, mkdir, ftruncate,
// fsync, fdatasync. With SHIM_LOG each is written there as "number call path". The SHIM_KILL_AT-th does not return: the
// process ends as by kill -9, before the call (SHIM_KILL_HOW=before), after it, or with half of a write written (half).
//
// With SHIM_POWER=1 the end is a power loss: of every file, what was written since its last fsync is cut off, and every
// rename or link is undone whose folder was not synced after it. Files are taken to be written by appending. The name of
// a new file is taken to be durable with its first fsync, as the usual file systems have it. SHIM_SCRATCH is a folder on
// the same file system, outside SHIM_ROOT, for what renames replace.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#define FILES_MAX 4096
#define MOVES_MAX 4096

struct file { dev_t device; ino_t inode; int descriptor; off_t synced; };
struct move { char from[PATH_MAX], to[PATH_MAX], replaced[PATH_MAX]; dev_t device; ino_t folder; int is_link; };

static struct file files[FILES_MAX];
static struct move *moves[MOVES_MAX];
static int file_count, move_count, log_descriptor = -1, power, how;
static unsigned long kill_at;
static atomic_ulong calls;
static char root[PATH_MAX], scratch[PATH_MAX];
// Held for reading by every counted call, so that at the end no other thread is inside one.
static pthread_rwlock_t gate = PTHREAD_RWLOCK_INITIALIZER;
static pthread_mutex_t book = PTHREAD_MUTEX_INITIALIZER;

enum { kBefore, kHalf, kAfter };

#define REAL(name) ((__typeof__(&name))real(#name))

static void *real(const char *name) {
  void *found = dlsym(RTLD_NEXT, name);
  if (found == NULL) abort();
  return found;
}

__attribute__((constructor)) static void start(void) {
  const char *text = getenv("SHIM_ROOT");
  if (text != NULL) snprintf(root, sizeof root, "%s", text);
  if ((text = getenv("SHIM_SCRATCH")) != NULL) snprintf(scratch, sizeof scratch, "%s", text);
  if ((text = getenv("SHIM_KILL_AT")) != NULL) kill_at = strtoul(text, NULL, 10);
  if ((text = getenv("SHIM_KILL_HOW")) != NULL) how = text[0] == 'h' ? kHalf : text[0] == 'a' ? kAfter : kBefore;
  power = (text = getenv("SHIM_POWER")) != NULL && text[0] == '1';
  if ((text = getenv("SHIM_LOG")) != NULL) log_descriptor = open(text, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
}

static int below(const char *path) {
  const size_t n = strlen(root);
  return n > 0 && strncmp(path, root, n) == 0 && (path[n] == '/' || path[n] == 0);
}

static int path_of(int descriptor, char *path) {
  char name[64];
  snprintf(name, sizeof name, "/proc/self/fd/%d", descriptor);
  const ssize_t n = readlink(name, path, PATH_MAX - 1);
  path[n > 0 ? n : 0] = 0;
  return n > 0 && below(path);
}

static struct file *file_of(int descriptor) {
  struct stat now;
  if (fstat(descriptor, &now) != 0 || !S_ISREG(now.st_mode)) return NULL;
  for (int i = 0; i < file_count; ++i) {
    if (files[i].device == now.st_dev && files[i].inode == now.st_ino) return &files[i];
  }
  if (file_count == FILES_MAX) abort();
  char name[64];
  snprintf(name, sizeof name, "/proc/self/fd/%d", descriptor);
  files[file_count] = (struct file){now.st_dev, now.st_ino, open(name, O_RDWR | O_CLOEXEC), now.st_size};
  return &files[file_count++];
}

static void note_write(int descriptor) {
  if (!power) return;
  pthread_mutex_lock(&book);
  file_of(descriptor);
  pthread_mutex_unlock(&book);
}

static void note_sync(int descriptor) {
  struct stat now;
  if (!power || fstat(descriptor, &now) != 0) return;
  pthread_mutex_lock(&book);
  if (S_ISDIR(now.st_mode)) {
    int kept = 0;
    for (int i = 0; i < move_count; ++i) {
      if (moves[i]->device == now.st_dev && moves[i]->folder == now.st_ino) {
        if (moves[i]->replaced[0]) REAL(unlink)(moves[i]->replaced);
        free(moves[i]);
      } else {
        moves[kept++] = moves[i];
      }
    }
    move_count = kept;
  } else {
    struct file *file = file_of(descriptor);
    if (file != NULL) file->synced = now.st_size;
  }
  pthread_mutex_unlock(&book);
}

static struct move *new_move(const char *from, const char *to, int is_link) {
  static int serial;
  struct move *move = calloc(1, sizeof *move);
  snprintf(move->from, PATH_MAX, "%s", from);
  snprintf(move->to, PATH_MAX, "%s", to);
  move->is_link = is_link;
  char folder[PATH_MAX];
  snprintf(folder, PATH_MAX, "%s", to);
  *strrchr(folder, '/') = 0;
  struct stat now;
  if (stat(folder, &now) == 0) move->device = now.st_dev, move->folder = now.st_ino;
  if (!is_link && access(to, F_OK) == 0) {
    snprintf(move->replaced, PATH_MAX, "%.3000s/replaced-%d-%d", scratch, getpid(), serial++);
    if (REAL(link)(to, move->replaced) != 0) move->replaced[0] = 0;
  }
  return move;
}

static void keep_move(struct move *move, int result) {
  if (result == 0 && move_count < MOVES_MAX) {
    moves[move_count++] = move;
  } else {
    if (move->replaced[0]) REAL(unlink)(move->replaced);
    free(move);
  }
}

static void lose_power(void) {
  for (int i = move_count - 1; i >= 0; --i) {
    if (moves[i]->is_link) {
      REAL(unlink)(moves[i]->to);
    } else {
      REAL(rename)(moves[i]->to, moves[i]->from);
      if (moves[i]->replaced[0]) REAL(rename)(moves[i]->replaced, moves[i]->to);
    }
  }
  for (int i = 0; i < file_count; ++i) {
    struct stat now;
    if (fstat(files[i].descriptor, &now) == 0 && now.st_size > files[i].synced) {
      if (REAL(ftruncate)(files[i].descriptor, files[i].synced) != 0) abort();
    }
  }
}

static void die(void) {
  pthread_rwlock_wrlock(&gate);
  if (power) lose_power();
  kill(getpid(), SIGKILL);
  for (;;) pause();
}

// Whether this call is the last.
static int last(const char *call, const char *path) {
  const unsigned long n = atomic_fetch_add(&calls, 1) + 1;
  if (log_descriptor >= 0) {
    char line[PATH_MAX + 64];
    const int size = snprintf(line, sizeof line, "%lu %s %s\n", n, call, path);
    if (REAL(write)(log_descriptor, line, size) != size) abort();
  }
  return n == kill_at;
}

// Wraps one call: `half` is what it does when only half of it is done.
#define COUNTED(type, name, path, note, half, call, after)  \
  do {                                                      \
    const int end = last(name, path);                       \
    if (end && how == kBefore) die();                       \
    pthread_rwlock_rdlock(&gate);                           \
    note;                                                   \
    if (end && how == kHalf) {                              \
      half;                                                 \
      pthread_rwlock_unlock(&gate);                         \
      die();                                                \
    }                                                       \
    const type result = call;                               \
    after;                                                  \
    pthread_rwlock_unlock(&gate);                           \
    if (end) die();                                         \
    return result;                                          \
  } while (0)

ssize_t write(int fd, const void *bytes, size_t n) {
  char path[PATH_MAX];
  if (!path_of(fd, path)) return REAL(write)(fd, bytes, n);
  COUNTED(ssize_t, "write", path, note_write(fd), { ssize_t ignored = REAL(write)(fd, bytes, n / 2); (void)ignored; },
          REAL(write)(fd, bytes, n), );
}

ssize_t pwrite(int fd, const void *bytes, size_t n, off_t at) {
  char path[PATH_MAX];
  if (!path_of(fd, path)) return REAL(pwrite)(fd, bytes, n, at);
  COUNTED(ssize_t, "pwrite", path, note_write(fd),
          { ssize_t ignored = REAL(pwrite)(fd, bytes, n / 2, at); (void)ignored; }, REAL(pwrite)(fd, bytes, n, at), );
}

ssize_t pwrite64(int fd, const void *bytes, size_t n, off64_t at) { return pwrite(fd, bytes, n, at); }

ssize_t writev(int fd, const struct iovec *parts, int n) {
  char path[PATH_MAX];
  if (!path_of(fd, path)) return REAL(writev)(fd, parts, n);
  COUNTED(ssize_t, "writev", path, note_write(fd),
          { ssize_t ignored = REAL(writev)(fd, parts, n / 2); (void)ignored; }, REAL(writev)(fd, parts, n), );
}

int fsync(int fd) {
  char path[PATH_MAX];
  if (!path_of(fd, path)) return REAL(fsync)(fd);
  COUNTED(int, "fsync", path, , , REAL(fsync)(fd), note_sync(fd));
}

int fdatasync(int fd) {
  char path[PATH_MAX];
  if (!path_of(fd, path)) return REAL(fdatasync)(fd);
  COUNTED(int, "fdatasync", path, , , REAL(fdatasync)(fd), note_sync(fd));
}

int ftruncate(int fd, off_t size) {
  char path[PATH_MAX];
  if (!path_of(fd, path)) return REAL(ftruncate)(fd, size);
  COUNTED(int, "ftruncate", path, note_write(fd), , REAL(ftruncate)(fd, size), );
}

int ftruncate64(int fd, off64_t size) { return ftruncate(fd, size); }

static int moved(const char *from, const char *to, int is_link) {
  struct move *move = NULL;
  if (power) {
    pthread_mutex_lock(&book);
    move = new_move(from, to, is_link);
  }
  const int result = is_link ? REAL(link)(from, to) : REAL(rename)(from, to);
  if (power) {
    keep_move(move, result);
    pthread_mutex_unlock(&book);
  }
  return result;
}

int rename(const char *from, const char *to) {
  if (!below(to)) return REAL(rename)(from, to);
  COUNTED(int, "rename", to, , , moved(from, to, 0), );
}

int link(const char *from, const char *to) {
  if (!below(to)) return REAL(link)(from, to);
  COUNTED(int, "link", to, , , moved(from, to, 1), );
}

// CPython links with linkat where the system has it.
int linkat(int from_folder, const char *from, int to_folder, const char *to, int flags) {
  if (!below(to) || from[0] != '/') return REAL(linkat)(from_folder, from, to_folder, to, flags);
  COUNTED(int, "link", to, , , moved(from, to, 1), );
}

int unlink(const char *path) {
  if (!below(path)) return REAL(unlink)(path);
  COUNTED(int, "unlink", path, , , REAL(unlink)(path), );
}

int mkdir(const char *path, mode_t mode) {
  if (!below(path)) return REAL(mkdir)(path, mode);
  COUNTED(int, "mkdir", path, , , REAL(mkdir)(path, mode), );
}
