// `driver redsync|redislock|etcd URL`: the locks of Go. The protocol is in ../README.md.
package main

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	"github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"go.uber.org/zap"
)

const (
	lease  = 30 * time.Second
	atOnce = 64
	// redislock's own example waits so long between two tries; redsync has a pause of its own.
	redislockPause = 100 * time.Millisecond
	// Errors in a circle would be all that is measured.
	afterError = 10 * time.Millisecond
)

// lock is what one task keeps: acquire says whether it got it, release what went wrong.
type lock interface {
	acquire(wait time.Duration) (bool, error)
	release() error
}

// within is the context of a wait that ends after so long; 0: never.
func within(wait time.Duration) (context.Context, context.CancelFunc) {
	if wait == 0 {
		return context.Background(), func() {}
	}
	return context.WithTimeout(context.Background(), wait)
}

type ofRedsync struct{ mutex *redsync.Mutex }

func (l ofRedsync) acquire(wait time.Duration) (bool, error) {
	ctx, cancel := within(wait)
	defer cancel()
	err := l.mutex.LockContext(ctx)
	var taken *redsync.ErrTaken
	if wait > 0 && (errors.Is(err, redsync.ErrFailed) || errors.As(err, &taken) ||
		errors.Is(err, context.DeadlineExceeded)) {
		return false, nil
	}
	return err == nil, err
}

func (l ofRedsync) release() error {
	done, err := l.mutex.Unlock()
	if err == nil && !done {
		err = errors.New("unlock: it was not held")
	}
	return err
}

type ofRedislock struct {
	client *redislock.Client
	name   string
	held   *redislock.Lock
}

func (l *ofRedislock) acquire(wait time.Duration) (bool, error) {
	// Without a deadline of the caller's it sets one of its own: the lease.
	ctx, cancel := within(cmp.Or(wait, 24*time.Hour))
	defer cancel()
	held, err := l.client.Obtain(ctx, l.name, lease, &redislock.Options{
		RetryStrategy: redislock.LinearBackoff(redislockPause),
	})
	if wait > 0 && (errors.Is(err, redislock.ErrNotObtained) || errors.Is(err, context.DeadlineExceeded)) {
		return false, nil
	}
	l.held = held
	return err == nil, err
}

func (l *ofRedislock) release() error { return l.held.Release(context.Background()) }

// ofEtcd is one owner: whoever shares its session would share its place in the queue too.
type ofEtcd struct {
	client *clientv3.Client
	name   string
	mutex  *concurrency.Mutex
}

func (l *ofEtcd) acquire(wait time.Duration) (bool, error) {
	if l.mutex == nil {
		session, err := concurrency.NewSession(l.client, concurrency.WithTTL(int(lease.Seconds())))
		if err != nil {
			return false, err
		}
		l.mutex = concurrency.NewMutex(session, l.name)
	}
	ctx, cancel := within(wait)
	defer cancel()
	err := l.mutex.Lock(ctx)
	if wait > 0 && errors.Is(err, context.DeadlineExceeded) {
		return false, nil
	}
	return err == nil, err
}

func (l *ofEtcd) release() error { return l.mutex.Unlock(context.Background()) }

// nowNS is CLOCK_MONOTONIC, the same for all processes of a machine, which package time keeps to itself.
func nowNS() int64 {
	var at syscall.Timespec
	const monotonic = 1
	syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, monotonic, uintptr(unsafe.Pointer(&at)), 0)
	return at.Nano()
}

// left counts the tasks that have not come to their end, of all runs of this process.
var left atomic.Int64

type run struct {
	words  map[string]string
	over   atomic.Bool
	mutex  sync.Mutex
	Rows   []int64 `json:"rows"`
	GaveUp []int64 `json:"gave_up"`
	Errors int     `json:"errors"`
	Error  string  `json:"error"`
}

func (r *run) number(key string) int64 {
	value, _ := strconv.ParseInt(r.words[key], 10, 64)
	return value
}

func (r *run) failed(err error) {
	if err == nil {
		return
	}
	r.mutex.Lock()
	defer r.mutex.Unlock()
	r.Errors++
	if r.Error == "" {
		r.Error = err.Error()
	}
}

// section is what is done under the lock. The counter is written from what was read: two at once lose one.
func (r *run) section(client *redis.Client) error {
	if key := r.words["counter"]; key != "-" {
		read, err := client.Get(context.Background(), key).Int64()
		if err != nil && !errors.Is(err, redis.Nil) {
			return err
		}
		if err := client.Set(context.Background(), key, read+1, 0).Err(); err != nil {
			return err
		}
	}
	if hold := r.number("hold_ms"); hold > 0 {
		time.Sleep(time.Duration(hold) * time.Millisecond)
	}
	return nil
}

func (r *run) turns(client *redis.Client, task int64, of lock) {
	defer left.Add(-1)
	wait := time.Duration(r.number("wait_ms")) * time.Millisecond
	for !r.over.Load() {
		asked := nowNS()
		got, err := of.acquire(wait)
		if err != nil {
			r.failed(err)
			time.Sleep(afterError)
			continue
		}
		if !got {
			took := nowNS() - asked
			r.mutex.Lock()
			r.GaveUp = append(r.GaveUp, took)
			r.mutex.Unlock()
			continue
		}
		acquired := nowNS()
		r.failed(r.section(client))
		releasing := nowNS()
		r.failed(of.release())
		released := nowNS()
		r.mutex.Lock()
		r.Rows = append(r.Rows, task, asked, acquired, releasing, released)
		r.mutex.Unlock()
	}
}

func (r *run) answer() []byte {
	r.over.Store(true)
	r.mutex.Lock()
	defer r.mutex.Unlock()
	line, _ := json.Marshal(r)
	return line
}

func version(module string) string {
	info, _ := debug.ReadBuildInfo()
	for _, one := range info.Deps {
		if one.Path == module {
			return strings.TrimPrefix(one.Version, "v")
		}
	}
	return "unknown"
}

func hold(words map[string]string, of func(string) lock, kept *[]lock) (int, string) {
	var mutex sync.Mutex
	var group sync.WaitGroup
	wanted, _ := strconv.Atoi(words["locks"])
	places, failed := make(chan struct{}, atOnce), ""
	for number := range wanted {
		places <- struct{}{}
		group.Add(1)
		go func() {
			defer func() { <-places; group.Done() }()
			one := of(fmt.Sprintf("%s:%d", words["name"], number))
			_, err := one.acquire(0)
			mutex.Lock()
			defer mutex.Unlock()
			if err != nil {
				failed = err.Error()
			} else {
				*kept = append(*kept, one)
			}
		}()
	}
	group.Wait()
	return len(*kept), failed
}

// library is what one kind needs: the client for the counter, if its server has one, and a lock for each name.
type library struct {
	redis          *redis.Client
	of             func(name string) lock
	module, client string
	renews         bool
}

func onRedis(which, url string) library {
	options, err := redis.ParseURL(url)
	if err != nil {
		panic(err)
	}
	client := redis.NewClient(options)
	if err := client.Ping(context.Background()).Err(); err != nil {
		panic(err)
	}
	sync, locker := redsync.New(goredis.NewPool(client)), redislock.New(client)
	one := library{redis: client, module: "github.com/bsm/redislock", client: "github.com/redis/go-redis/v9"}
	one.of = func(name string) lock { return &ofRedislock{client: locker, name: name} }
	if which == "redsync" {
		one.module = "github.com/go-redsync/redsync/v4"
		one.of = func(name string) lock {
			// Waiting is bounded by tries alone; these last for years.
			return ofRedsync{sync.NewMutex(name, redsync.WithExpiry(lease), redsync.WithTries(math.MaxInt32))}
		}
	}
	return one
}

func onEtcd(url string) library {
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{url}, Logger: zap.NewNop()})
	if err != nil {
		panic(err)
	}
	if _, err := client.Get(context.Background(), "nothing"); err != nil {
		panic(err)
	}
	of := func(name string) lock { return &ofEtcd{client: client, name: name} }
	return library{of: of, module: "go.etcd.io/etcd/client/v3", client: "google.golang.org/grpc", renews: true}
}

func main() {
	which, url := os.Args[1], os.Args[2]
	var used library
	if which == "etcd" {
		used = onEtcd(url)
	} else {
		used = onRedis(which, url)
	}
	of, client := used.of, used.redis
	short := used.client[strings.Index(used.client, "/")+1:]
	fmt.Printf("{\"hello\":{\"version\":%q,\"runs_on\":\"%s, %s %s\",\"renews\":%t}}\n",
		version(used.module), runtime.Version(), short, version(used.client), used.renews)
	current, kept := &run{}, []lock{}
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		verb, rest, _ := strings.Cut(lines.Text(), " ")
		words := map[string]string{}
		for _, word := range strings.Fields(rest) {
			key, value, _ := strings.Cut(word, "=")
			words[key] = value
		}
		switch verb {
		case "run":
			current = &run{words: words, Rows: []int64{}, GaveUp: []int64{}}
			first, locks := current.number("first"), max(1, current.number("locks"))
			left.Add(current.number("tasks"))
			for task := first; task < first+current.number("tasks"); task++ {
				go current.turns(client, task, of(fmt.Sprintf("%s:%d", words["name"], task%locks)))
			}
			fmt.Printf("{\"running\":%d}\n", current.number("tasks"))
		case "hold":
			held, failed := hold(words, of, &kept)
			fmt.Printf("{\"held\":%d,\"error\":%q}\n", held, failed)
		case "stop":
			fmt.Printf("%s\n", current.answer())
		case "left":
			fmt.Printf("{\"left\":%d}\n", left.Load())
		}
	}
}
