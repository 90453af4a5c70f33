// Asks the API of the cluster in which it is a pod, over a new connection each time, and prints a line for each answer: `ok`, or
// the error. Its client-go reads `ca.crt` once.
package main

import (
	"fmt"
	"net/http"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

type closing struct{ next http.RoundTripper }

func (c closing) RoundTrip(request *http.Request) (*http.Response, error) {
	request.Close = true
	return c.next.RoundTrip(request)
}

func main() {
	config, err := rest.InClusterConfig()
	if err != nil {
		panic(err)
	}
	config.Timeout = 2 * time.Second
	config.QPS = -1
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return closing{next} })
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		panic(err)
	}
	for {
		if _, err := client.Discovery().ServerVersion(); err != nil {
			fmt.Println(err)
		} else {
			fmt.Println("ok")
		}
		time.Sleep(100 * time.Millisecond)
	}
}
