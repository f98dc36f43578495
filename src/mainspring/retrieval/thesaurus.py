"""Words with similar meanings in descriptions of tools, skills and notes.

Queries are expanded with it: "erase the folder" finds "delete_directory". It lists the vocabulary
of computers and offices, not of any product's tools.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from mainspring.retrieval.stems import stem

# One group per line. A word may be in several groups; groups are not chained.
_GROUPS = """
create make new add insert start open generate define set-up initialize prepare
add append insert attach put include extend
delete remove erase drop forget wipe clear discard purge destroy
update change edit modify alter replace correct patch adjust amend
read open show view see look display print get retrieve load inspect
get retrieve fetch obtain read look lookup find
list show enumerate overview all every
find search look lookup locate query discover
write save store record put
send post publish announce tell notify submit share
move rename transfer shift relocate
copy duplicate clone fork
close shut end finish stop quit
stop end cancel abort halt terminate
start begin launch run open
run execute evaluate perform invoke
compare diff difference differences
merge combine join integrate
upload attach
download fetch retrieve get save
compress zip archive gzip pack
convert translate transform turn change
wait pause sleep delay until
press click hit tap push
select choose pick option
type enter fill input write paste
fill complete enter form
navigate go visit open browse
capture take record grab
reply answer respond response
react reaction emoji like thumbs
approve accept confirm agree
reject deny refuse dismiss
review approve feedback
check verify test validate status
analyze analyse examine investigate study insight
think reason reflect ponder plan thought
remember store memorize note memory keep
forget delete remove
connect link relate relation associate
count number sum total amount
sum add plus total
describe explain detail schema
switch checkout change select jump
undo revert reset rollback restore unstage
stage add index
throttle slow emulate simulate limit
emulate simulate pretend imitate
resize size dimension width height
repeat echo
file document text
folder directory path place
directory tree structure layout hierarchy
picture image photo screenshot media scan
screenshot picture capture
video recording screencast movie
audio sound recording media
metadata information details properties size timestamp
size big large bytes
pattern glob wildcard match ends
log history record journal past
log recent lately latest
commit revision version save changeset
commit record save
branch line
status state condition
changes modified edits differences unstaged
staged index selected
repository repo project codebase
issue bug ticket defect problem report
pull proposal
request proposal
comment remark note discussion reply
label tag category
author who person
user person member account people colleague developer customer
users people members team
profile account person contact
channel room chat conversation
message post announcement note
thread discussion conversation replies
workspace team organization
entity person thing item object company node
observation fact remark statement note detail
relation relationship link connection
graph knowledge memory network
node entity item
table tables spreadsheet
database table data rows
row record entry
column field attribute property
schema columns structure fields definition
query select question ask
query rows
select read rows
insert update delete write rows
insight finding observation conclusion
page site website webpage web
page document article
url address link web website site internet
internet web online
website site page shop portal
html page web
fetch download read url
tab page window
browser page web site
dialog alert popup confirm prompt
form field fields input
field input textbox box
dropdown select option list
button element link control
element button link box field
hover mouse pointer
drag move drop card
key keyboard enter return
console developer errors warnings log
network requests traffic calls wire http
request call
response answer reply body
performance speed fast slow loading trace
trace recording performance
heap memory leak
accessibility a11y
audit check quality lighthouse
snapshot picture state structure
javascript script code js
code source program
environment variables env configuration
time clock hour date now
timezone zone city
current now today present
convert translate
progress far status
resource link
block paragraph section text
parent below under child
child below nested
title name heading
comment question
wiki page notion knowledge
notion wiki
slack chat channel team
github hosting repository
git version revision
sqlite sql database
bot integration account
template form
calendar schedule appointment meeting event
email mail message
invoice bill payment
customer client account
ticket issue task story case
tracker issue jira ticket
jira ticket issue tracker
board kanban sprint backlog
sprint iteration
watch follow subscribe watcher
assign owner responsible assignee
transition status move done state
worklog hours effort
attachment file upload
confluence wiki documentation page
documentation docs page manual guide reference
docs documentation library
library package framework module
note notes file document vault
notes vault obsidian
note observation remark
vault folder notes
topic subject theme
mention contain containing
daily periodic today
crm contact company deal
contact person object
company object organization business
deal object opportunity
associate association link connect
engagement note call meeting
record row entry item
base airtable database
field column property
collection table documents
document record
filter match criteria condition
aggregate group summarize pipeline
statistics stats numbers metrics usage
explain plan why slow
index indexes
namespace project
pod container workload
container pod docker
deployment application service rollout
restart rollout reload
scale replicas size
manifest yaml configuration apply
cluster kubernetes kubectl
kubernetes kubectl cluster
node machine server host
logs log output
exec run execute command
port forward tunnel
chart helm package release
map maps place location
place location business shop restaurant address
local nearby near
address location place
coordinates latitude longitude geographic geocode
geocode coordinates address
elevation altitude height
distance far travel
directions route way driving
crawl website pages spider
scrape extract page content
extract scrape pull content
links urls map
research question sources investigate
news current web
lookup search web
paper papers article publication scientific research
abstract summary
summary summarize overview
monitor watch observe
feedback rating opinion
calculate compute
member user
permission access rights
restriction permission access
template model pattern
task item todo entry
allowed permitted may access
multiple several many batch
multiple together once
recursive nested whole entire deep
complete whole entire full
entire everything complete all whole
"""


@cache
def related_stems() -> Mapping[str, frozenset[str]]:
    """Each stem of the list with the stems of similar words."""
    related: dict[str, set[str]] = {}
    for line in _GROUPS.strip().splitlines():
        group = {stem(word) for word in line.replace("-", "").split()}
        for word in group:
            related.setdefault(word, set()).update(group - {word})
    return {word: frozenset(others) for word, others in related.items()}
